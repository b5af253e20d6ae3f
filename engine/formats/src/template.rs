//! Chat templates (Jinja), rendered within bounds, with the spans that assistants wrote.
//!
//! A template comes with a model and is hostile until rendered: no files, no other templates, bounded steps and output.
//!
//! Not here: ids of special tokens (`tokenizer`), where conversations come from (`dataset`).

mod engine;
mod marker;
mod python;
mod shield;

pub use python::Date;

use crate::files::Files;
use crate::tokenizer::{Control, Tokenizer, free_mark, is_cut, names};
use engine::Engine;
use minijinja::value::ValueKind;
use protocol::{Code, Outcome, Problem, limits};
use serde_json::Value as Json;
use shield::Shield;
use std::ops::Range;
use std::path::Path;

/// A message as templates see it: an object with at least `role` and `content`; keys keep the order of the file.
pub type Turn = minijinja::Value;

/// Turns of a conversation for which spans are found by rendering its beginnings, twice a turn.
const TURNS: usize = 256;
/// Bytes rendered for that, of one conversation: a second's work.
const BEGINNINGS: usize = 256 << 20;

/// A plain message.
pub fn turn(role: &str, content: &str) -> Turn {
    minijinja::context! { role => role, content => content }
}

/// A parsed template.
pub struct Template {
    engine: Engine,
    source: String,
    /// The source marks what assistants write with `{% generation %}`.
    marks: bool,
}

/// A rendered conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    /// Text.
    pub text: String,
    /// Byte ranges of `text` that assistants wrote, end tokens included.
    pub assistant: Vec<Range<usize>>,
    /// Byte positions where text of a message would have become a control token and must not.
    pub plain: Vec<usize>,
}

impl Template {
    /// The template of a model folder: `chat_template.jinja`, else that of `tokenizer_config.json`; or of a GGUF file.
    /// None when it has none. Errors: `TemplateInvalid`, `TooLarge`, `TokenizerInvalid`.
    pub fn open(folder: &Path) -> Outcome<Option<Template>> {
        let opened = Files::open(folder)?;
        let Some((source, file)) = source(&opened)? else { return Ok(None) };
        let [bos, eos] = names(&opened, ["bos_token", "eos_token"])?;
        let template = Template::parse(&source, bos.as_deref(), eos.as_deref());
        template.map(Some).map_err(|p| p.file(&opened.place(file)))
    }

    /// Parses a source; `bos` and `eos` are what it knows as `bos_token` and `eos_token`.
    pub fn parse(source: &str, bos: Option<&str>, eos: Option<&str>) -> Outcome<Template> {
        if source.len() as u64 > limits::CONFIG_BYTES {
            return Err(Problem::new(Code::TooLarge, "the chat template is too large"));
        }
        let (rewritten, marks) = marker::rewrite(source);
        let engine = Engine::new(rewritten, bos, eos)?;
        Ok(Template { engine, source: source.to_owned(), marks })
    }

    /// The same with `strftime_now` giving this date; without one, templates see no such function.
    pub fn dated(mut self, date: Date) -> Template {
        self.engine.date(date);
        self
    }

    /// The source, for fingerprints.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation as the reference does: text of messages may become control tokens. Errors: `RowInvalid`
    /// when the template refuses the conversation, `TemplateInvalid` when the template is at fault.
    pub fn render(&self, messages: &[Turn], tools: Option<&Turn>, generation_prompt: bool) -> Outcome<Rendered> {
        self.render_shielded(messages, tools, generation_prompt, &[])
    }

    /// The same; texts of `control` tokens inside messages are listed in `plain`.
    pub fn render_shielded(
        &self,
        messages: &[Turn],
        tools: Option<&Turn>,
        generation_prompt: bool,
        control: &[String],
    ) -> Outcome<Rendered> {
        let shielded = Shielded::new(messages, tools, control)?;
        let mut rendered = shielded.draw(&self.engine, messages.len(), generation_prompt)?;
        if !self.marks {
            rendered.assistant = self.spans_by_beginnings(&shielded, &rendered, control)?;
        }
        Ok(rendered)
    }

    /// What the marks of the template train of a conversation and what its beginnings say that an assistant wrote, where the
    /// two differ by more than white space. None without marks, and where beginnings say nothing.
    pub fn marks_against_beginnings(
        &self,
        messages: &[Turn],
        tools: Option<&Turn>,
        control: &[String],
    ) -> Outcome<Option<[String; 2]>> {
        if !self.marks {
            return Ok(None);
        }
        let shielded = Shielded::new(messages, tools, control)?;
        let marked = shielded.draw(&self.engine, messages.len(), false)?;
        let Ok(spans) = self.spans_by_beginnings(&shielded, &marked, control) else { return Ok(None) };
        let texts = |spans: &[Range<usize>]| -> Vec<String> {
            spans.iter().filter_map(|span| marked.text.get(span.clone())).map(|text| text.trim().to_owned()).collect()
        };
        let (marks, beginnings) = (texts(&marked.assistant), texts(&spans));
        if marks == beginnings {
            return Ok(None);
        }
        let at = marks.iter().zip(&beginnings).take_while(|(a, b)| a == b).count();
        let one = |texts: &[String]| texts.get(at).cloned().unwrap_or_default();
        Ok(Some([one(&marks), one(&beginnings)]))
    }

    /// Renders and tokenises what a model is asked with: ends with the generation prompt. Text of messages stays plain.
    pub fn prompt(&self, tokenizer: &Tokenizer, messages: &[Turn]) -> Outcome<Vec<u32>> {
        let rendered = self.render_shielded(messages, None, true, tokenizer.control_texts())?;
        Ok(tokenizer.encode_with(&rendered.text, Control::PlainAt(&rendered.plain), false)?.ids)
    }

    /// Without marks in the template: an assistant's turn is what the conversation up to it has more than the prompt
    /// before it, up to and including its end token.
    fn spans_by_beginnings(
        &self,
        shielded: &Shielded,
        whole: &Rendered,
        control: &[String],
    ) -> Outcome<Vec<Range<usize>>> {
        let (mut spans, messages) = (Vec::new(), &shielded.messages);
        let turns: Vec<usize> = (0..messages.len()).filter(|i| is_assistant(&messages[*i])).collect();
        if turns.len() > TURNS || turns.len() * whole.text.len() > BEGINNINGS {
            let what = format!("the conversation is too long: {} answers in {} bytes", turns.len(), whole.text.len());
            return Err(Problem::new(Code::RowInvalid, what)
                .why(format!("without marks in the template, at most {TURNS} answers are told apart")));
        }
        for i in turns {
            let before = shielded.draw(&self.engine, i, true)?;
            let after = shielded.draw(&self.engine, i + 1, false)?;
            let start = before.text.len();
            let end = end_of_answer(&after, start, control);
            if !after.text.starts_with(&before.text) || whole.text.get(..end) != after.text.get(..end) {
                return Err(Problem::new(
                    Code::TemplateInvalid,
                    "the chat template does not show which part an assistant wrote",
                )
                .why("an answer changes what is written before it")
                .remedy("mark the answers in the template with {% generation %} and {% endgeneration %}"));
            }
            spans.push(start..end);
        }
        Ok(spans)
    }
}

/// A conversation with marks in its texts, ready to be rendered whole or in part.
struct Shielded {
    shield: Shield,
    messages: Vec<Turn>,
    tools: Option<Turn>,
}

impl Shielded {
    fn new(messages: &[Turn], tools: Option<&Turn>, control: &[String]) -> Outcome<Shielded> {
        // Definitions of tools are text of the data as much as messages are.
        let all: Vec<Turn> = messages.iter().chain(tools).cloned().collect();
        let (shield, mut messages) = Shield::over(&all, control)?;
        let tools = tools.and_then(|_| messages.pop());
        Ok(Shielded { shield, messages, tools })
    }

    /// The first `n` messages, rendered.
    fn draw(&self, engine: &Engine, n: usize, prompt: bool) -> Outcome<Rendered> {
        let text = engine.render(&self.messages[..n], self.tools.as_ref(), prompt, &self.shield)?;
        Ok(self.shield.take_out(&text))
    }
}

/// The template and the file it is from.
fn source(folder: &Files) -> Outcome<Option<(String, &'static str)>> {
    const JINJA: &str = "chat_template.jinja";
    const CONFIG: &str = "tokenizer_config.json";
    if folder.has(JINJA) {
        let bytes = folder.read(JINJA, limits::CONFIG_BYTES)?;
        return Ok(Some((crate::folder::text(bytes, &folder.place(JINJA))?, JINJA)));
    }
    if !folder.has(CONFIG) {
        return Ok(None);
    }
    let path = folder.place(CONFIG);
    let bytes = folder.read(CONFIG, limits::CONFIG_BYTES)?;
    let config: Json = serde_json::from_slice(&bytes).map_err(|e| {
        let what = "tokenizer_config.json is not JSON";
        Problem::new(Code::TokenizerInvalid, what).why(e.to_string()).line(e.line() as u64).file(&path)
    })?;
    // A string, or a list of named templates of which "default" is the one for chats.
    let chosen = match config.get("chat_template") {
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(all)) => {
            all.iter().find(|t| t["name"] == "default").and_then(|t| t["template"].as_str()).map(str::to_owned)
        }
        _ => None,
    };
    Ok(chosen.map(|text| (text, CONFIG)))
}

fn is_assistant(turn: &Turn) -> bool {
    turn.kind() == ValueKind::Map && turn.get_attr("role").is_ok_and(|r| r.as_str() == Some("assistant"))
}

/// Where an answer that begins at `start` ends: after the last control token that the template wrote behind it, or at
/// the end of the text.
fn end_of_answer(after: &Rendered, start: usize, control: &[String]) -> usize {
    let tail = after.text.get(start..).unwrap_or_default();
    let ends = control.iter().flat_map(|token| {
        let written = tail.rmatch_indices(token.as_str()).map(|(i, t)| (start + i, start + i + t.len()));
        written.into_iter().find(|(a, b)| !is_cut(&after.plain, *a, *b))
    });
    ends.map(|(_, end)| end).max().unwrap_or(after.text.len())
}

/// A mark that none of these texts holds.
fn mark_besides(texts: &[&str]) -> Outcome<char> {
    free_mark(texts).ok_or_else(|| Problem::new(Code::RowInvalid, "the row uses every Unicode noncharacter"))
}

#[cfg(test)]
mod tests;
