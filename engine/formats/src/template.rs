//! Chat templates (Jinja), rendered within bounds, with the spans that assistants wrote.

use crate::tokenizer::Tokenizer;
use protocol::Outcome;
use std::ops::Range;
use std::path::Path;

/// A message as templates see it: an object with at least `role` and `content`; keys keep the order of the file.
pub type Turn = minijinja::Value;

/// A plain message.
pub fn turn(role: &str, content: &str) -> Turn {
    minijinja::context! { role => role, content => content }
}

/// A parsed template.
pub struct Template;

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Text.
    pub text: String,
    /// Byte ranges of `text` that assistants wrote, end tokens included.
    pub assistant: Vec<Range<usize>>,
    /// Byte positions where text of a message would have become a control token and must not.
    pub plain: Vec<usize>,
}

impl Template {
    /// The template of a model folder: `chat_template.jinja`, else `tokenizer_config.json`. None when it has none.
    pub fn open(folder: &Path) -> Outcome<Option<Template>> {
        todo!("{folder:?}")
    }

    /// Parses a source.
    pub fn parse(source: &str, bos: Option<&str>, eos: Option<&str>) -> Outcome<Template> {
        todo!("{source} {bos:?} {eos:?}")
    }

    /// Renders a conversation.
    pub fn render(&self, messages: &[Turn], tools: Option<&Turn>, generation_prompt: bool) -> Outcome<Rendered> {
        todo!("{messages:?} {tools:?} {generation_prompt}")
    }

    /// Renders and tokenises what a model is asked with: ends with the generation prompt.
    pub fn prompt(&self, tokenizer: &Tokenizer, messages: &[Turn]) -> Outcome<Vec<u32>> {
        let _ = tokenizer;
        todo!("{messages:?}")
    }
}
