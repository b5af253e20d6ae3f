//! What template and tokenizer of a model disagree on, and a template with itself, seen on conversations of a data set. Each
//! is a note for people: training goes on as the template says.

use super::{Sampler, mask};
use crate::dataset::{Content, Conversation, Record};
use crate::template::{Rendered, Template};
use crate::tokenizer::{Control, Encoded};
use protocol::Outcome;
use protocol::job::Stage;

/// Longest name of a control token that is looked for, in bytes.
const NAME: usize = 60;
/// Control tokens that are not written between bars.
const USUAL: [&str; 6] = ["<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"];

/// A disagreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Which; one of each is enough to tell a user.
    pub kind: &'static str,
    /// For people.
    pub text: String,
}

impl Sampler<'_> {
    /// What disagrees on this record. Errors: those of `whole`.
    pub fn disagreements(&self, record: &Record) -> Outcome<Vec<Disagreement>> {
        let (Content::Messages(said), Some(template)) = (&record.content, self.template) else { return Ok(Vec::new()) };
        let rendered = template.render_shielded(&said.turns, said.tools.as_ref(), false, self.control())?;
        let encoded = self.tokenizer.encode_with(&rendered.text, Control::PlainAt(&rendered.plain), false)?;
        let mut found = Vec::new();
        let mut add = |kind, text: Option<String>| found.extend(text.map(|text| Disagreement { kind, text }));
        add("begin", self.twice_begun(&encoded));
        add("unknown", self.unknown_control(template, &rendered));
        add("tools", tools_left_out(said, &rendered));
        if self.settings.stage == Stage::Sft {
            add("end", self.other_end(&encoded, &rendered));
            add("marks", self.other_marks(template, said)?);
        }
        Ok(found)
    }

    fn twice_begun(&self, encoded: &Encoded) -> Option<String> {
        let bos = self.tokenizer.bos()?;
        (encoded.ids.len() > 1 && encoded.ids[..2] == [bos, bos]).then(|| {
            let name = self.tokenizer.bos_text().unwrap_or_default();
            format!("the chat template writes the beginning token {name} twice")
        })
    }

    /// The first answer holds no end token of the tokenizer.
    fn other_end(&self, encoded: &Encoded, rendered: &Rendered) -> Option<String> {
        let eos = self.tokenizer.eos()?;
        let trained = mask(encoded, rendered.assistant.get(..1)?);
        let answer = || encoded.ids.iter().zip(&trained).filter(|(_, trained)| **trained != 0).map(|(id, _)| *id);
        if answer().next().is_none() || answer().any(|id| id == eos) {
            return None;
        }
        let name = self.tokenizer.eos_text().unwrap_or_default();
        Some(match answer().filter(|id| self.tokenizer.is_special(*id)).last() {
            Some(other) => format!(
                "the chat template ends answers with {}, the tokenizer's end token is {name}",
                self.tokenizer.token_text(other)
            ),
            None => format!("answers are learnt without an end token ({name}), so the model may not stop by itself"),
        })
    }

    /// A control token by its looks that the template writes and the tokenizer takes for ordinary text.
    fn unknown_control(&self, template: &Template, rendered: &Rendered) -> Option<String> {
        let names = between_bars(template.source()).chain(USUAL.into_iter().filter(|u| template.source().contains(u)));
        let mut unknown = names.filter(|name| rendered.text.contains(name) && !self.tokenizer.has_token(name));
        let name = unknown.next()?;
        Some(format!("the chat template writes {}, which the tokenizer has no token for", name.escape_debug()))
    }

    fn other_marks(&self, template: &Template, said: &Conversation) -> Outcome<Option<String>> {
        let differ = template.marks_against_beginnings(&said.turns, said.tools.as_ref(), self.control())?;
        Ok(differ.map(|[marks, beginnings]| {
            format!(
                "the marks of the chat template say that an assistant wrote \"{}\", its beginnings say \"{}\"; the marks \
                 are followed",
                ending(&marks),
                ending(&beginnings)
            )
        }))
    }
}

/// The end of a text, where the two differ as a rule.
fn ending(text: &str) -> String {
    let count = text.chars().count();
    let end: String = text.chars().skip(count.saturating_sub(40)).collect();
    format!("{}{}", if count > 40 { "…" } else { "" }, end.escape_debug())
}

fn tools_left_out(said: &Conversation, rendered: &Rendered) -> Option<String> {
    let first = said.tools.as_ref()?.get_item_by_index(0).ok()?;
    let name = first.get_attr("function").ok()?.get_attr("name").ok()?;
    let name = name.as_str()?;
    (!rendered.text.contains(name)).then(|| "the chat template does not write the tools that rows define".to_owned())
}

/// Names like <|end|> in the source of a template.
fn between_bars(source: &str) -> impl Iterator<Item = &str> {
    source.match_indices("<|").filter_map(|(at, _)| {
        let rest = &source[at..];
        let end = rest.find("|>")? + 2;
        let name = &rest[..end];
        let plain = |c: char| !c.is_whitespace() && !matches!(c, '{' | '}' | '\'' | '"' | '+');
        (end <= NAME && name.chars().all(plain)).then_some(name)
    })
}
