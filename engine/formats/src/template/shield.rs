//! Keeps text of messages apart from what the template writes: a mark is put inside each text that would be a control
//! token, and marks around what assistants wrote; after rendering all are taken out and their places kept.

use super::{Rendered, Turn, mark_besides};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::{Code, Outcome, Problem};

/// Deepest nesting of a message.
const DEPTH: usize = protocol::limits::JSON_DEPTH;

/// The marks of one rendering; none of them occurs in a message.
pub(super) struct Shield {
    plain: char,
    pub(super) begin: char,
    pub(super) end: char,
}

impl Shield {
    /// Chooses marks and puts them into copies of the messages.
    pub(super) fn over(messages: &[Turn], control: &[String]) -> Outcome<(Shield, Vec<Turn>)> {
        let mut texts = Vec::new();
        messages.iter().try_for_each(|m| collect(m, &mut texts, DEPTH))?;
        let mut used: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut marks = ['\0'; 3];
        let mut own = [[0u8; 4]; 3];
        for (mark, bytes) in marks.iter_mut().zip(&mut own) {
            *mark = mark_besides(&used)?;
            used.push(mark.encode_utf8(bytes));
        }
        let shield = Shield { plain: marks[0], begin: marks[1], end: marks[2] };
        let unsafe_texts = !control.is_empty() && texts.iter().any(|t| !places(t, control).is_empty());
        let messages = if unsafe_texts {
            messages.iter().map(|m| shield.marked(m, control, DEPTH)).collect::<Outcome<_>>()?
        } else {
            messages.to_vec()
        };
        Ok((shield, messages))
    }

    /// The text without marks, and what they said.
    pub(super) fn take_out(&self, marked: &str) -> Rendered {
        let mut rendered = Rendered { text: String::with_capacity(marked.len()), ..Rendered::default() };
        let mut begin = None;
        for c in marked.chars() {
            let at = rendered.text.len();
            if c == self.plain {
                if rendered.plain.last() != Some(&at) {
                    rendered.plain.push(at);
                }
            } else if c == self.begin {
                begin = Some(at);
            } else if c == self.end {
                rendered.assistant.extend(begin.take().filter(|b| *b < at).map(|b| b..at));
            } else {
                rendered.text.push(c);
            }
        }
        rendered
    }

    fn marked(&self, value: &Value, control: &[String], depth: usize) -> Outcome<Value> {
        if depth == 0 {
            return Err(too_deep());
        }
        match value.kind() {
            ValueKind::String => Ok(Value::from(self.marked_text(value.as_str().unwrap_or_default(), control))),
            ValueKind::Seq => {
                let items = value.try_iter().map_err(|_| too_deep())?;
                Ok(Value::from(items.map(|v| self.marked(&v, control, depth - 1)).collect::<Outcome<Vec<_>>>()?))
            }
            ValueKind::Map => {
                let mut pairs = Vec::new();
                for key in value.try_iter().map_err(|_| too_deep())? {
                    let item = value.get_item(&key).unwrap_or_default();
                    let key = self.marked_text(key.as_str().unwrap_or_default(), control);
                    pairs.push((key, self.marked(&item, control, depth - 1)?));
                }
                Ok(Value::from_pairs(pairs))
            }
            _ => Ok(value.clone()),
        }
    }

    fn marked_text(&self, text: &str, control: &[String]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for place in places(text, control) {
            out.push_str(&text[from..place]);
            out.push(self.plain);
            from = place;
        }
        out.push_str(&text[from..]);
        out
    }
}

/// Where marks go: behind the first character of each control token, and of each beginning of one at the end of the text,
/// which the template might complete. Ascending, each once.
fn places(text: &str, control: &[String]) -> Vec<usize> {
    let mut places = Vec::new();
    for token in control {
        let first = token.chars().next().map_or(0, char::len_utf8);
        places.extend(text.match_indices(token.as_str()).map(|(i, _)| i + first));
        let beginnings = token.char_indices().map(|(i, _)| &token[..i]).filter(|b| !b.is_empty());
        places.extend(beginnings.filter(|b| text.ends_with(*b)).map(|b| text.len() - b.len() + first));
    }
    places.sort_unstable();
    places.dedup();
    places
}

fn collect(value: &Value, texts: &mut Vec<String>, depth: usize) -> Outcome<()> {
    if depth == 0 {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::String => {
            // Only texts that hold a mark or may hold a control token matter, but all are short beside the record.
            texts.push(value.as_str().unwrap_or_default().to_owned());
            Ok(())
        }
        ValueKind::Seq => value.try_iter().map_err(|_| too_deep())?.try_for_each(|v| collect(&v, texts, depth - 1)),
        ValueKind::Map => value.try_iter().map_err(|_| too_deep())?.try_for_each(|key| {
            collect(&value.get_item(&key).unwrap_or_default(), texts, depth - 1)?;
            collect(&key, texts, depth - 1)
        }),
        _ => Ok(()),
    }
}

fn too_deep() -> Problem {
    Problem::new(Code::RowInvalid, format!("the message is nested deeper than {DEPTH}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::turn;
    use crate::tokenizer::free_mark;

    #[test]
    fn marks_leave_no_trace_and_avoid_the_texts_own() {
        let control = vec!["<|end|>".to_owned()];
        let messages = [turn("user", "\u{FDD0} a<|end|>b<|e")];
        let (shield, marked) = Shield::over(&messages, &control).unwrap();
        let text = marked[0].get_attr("content").unwrap();
        let rendered = shield.take_out(text.as_str().unwrap());
        assert_eq!(rendered.text, "\u{FDD0} a<|end|>b<|e");
        assert_eq!(rendered.plain, [6, 14]);
        assert_eq!(free_mark(&[text.as_str().unwrap()]), Some('\u{FDD2}'));
    }
}
