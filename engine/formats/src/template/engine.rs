//! The Jinja engine as `transformers` sets it up: blocks trimmed, Python's methods and printing, no files, bounded.

use super::Turn;
use super::marker::FILTER;
use super::python::{self, Date};
use super::shield::Shield;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use protocol::{Code, Outcome, Problem};
use std::io::Write;

/// Steps of one rendering; about a tenth of a second. Long conversations take some tens of steps a message.
const FUEL: u64 = 3_000_000;
/// Bytes of one rendering.
const OUTPUT_BYTES: usize = 64 << 20;
const NAME: &str = "chat_template";
/// How an exception of the template is told from a failure of it.
const RAISED: &str = "raised by the template: ";

pub(super) struct Engine {
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

impl Engine {
    pub fn new(source: String, bos: Option<&str>, eos: Option<&str>) -> Outcome<Engine> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| invalid(&e))?);
        environment.set_fuel(Some(FUEL));
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(python::print);
        environment.add_filter("tojson", python::to_json);
        environment.add_filter(FILTER, marked);
        environment.add_function("raise_exception", raise);
        environment.add_template_owned(NAME, source).map_err(|e| invalid(&e))?;
        Ok(Engine { environment, bos: bos.map(str::to_owned), eos: eos.map(str::to_owned) })
    }

    pub fn date(&mut self, date: Date) {
        self.environment.add_function("strftime_now", move |format: &str| date.format(format));
    }

    /// The text with the marks of `shield` in it.
    pub fn render(&self, messages: &[Turn], tools: Option<&Turn>, prompt: bool, shield: &Shield) -> Outcome<String> {
        let template = self.environment.get_template(NAME).map_err(|e| invalid(&e))?;
        let text = |t: &Option<String>| t.as_deref().map_or(Value::UNDEFINED, Value::from);
        let context = minijinja::context! {
            messages => messages,
            tools => tools.cloned().unwrap_or(Value::from(())),
            documents => (),
            add_generation_prompt => prompt,
            bos_token => text(&self.bos),
            eos_token => text(&self.eos),
            anneal_begin => shield.begin.to_string(),
            anneal_end => shield.end.to_string(),
        };
        let mut out = Bounded::default();
        template.render_captured_to(context, &mut out).map_err(|e| out.problem(&e))?;
        String::from_utf8(out.bytes).map_err(|_| Problem::new(Code::TemplateInvalid, "the chat template wrote no text"))
    }
}

/// The filter behind `{% generation %}`.
fn marked(state: &State, text: &str) -> String {
    let mark = |name: &str| state.lookup(name).unwrap_or_default().to_string();
    format!("{}{text}{}", mark("anneal_begin"), mark("anneal_end"))
}

fn raise(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// A buffer that refuses to grow beyond its bound.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for &mut Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_BYTES {
            self.full = true;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Bounded {
    fn problem(&self, e: &Error) -> Problem {
        if self.full {
            let what = format!("the chat template writes too much: more than {OUTPUT_BYTES} bytes");
            return Problem::new(Code::TemplateInvalid, what);
        }
        invalid(e)
    }
}

fn invalid(e: &Error) -> Problem {
    let detail = e.detail().unwrap_or_default();
    if let Some(message) = detail.strip_prefix(RAISED) {
        let what = "the chat template refuses this conversation";
        return Problem::new(Code::RowInvalid, what).why(message.chars().take(500).collect::<String>());
    }
    let what = match e.kind() {
        ErrorKind::OutOfFuel => format!("the chat template takes too long: its limit is {FUEL} steps"),
        ErrorKind::SyntaxError => "the chat template is not valid Jinja".into(),
        _ => "the chat template cannot be rendered".into(),
    };
    let mut problem = Problem::new(Code::TemplateInvalid, what)
        .why(e.to_string().chars().take(500).collect::<String>())
        .remedy("correct chat_template in the model's folder, or take the one that came with the model");
    if let Some(line) = e.line() {
        problem = problem.line(line as u64);
    }
    problem
}
