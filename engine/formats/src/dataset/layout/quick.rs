//! Rows that are plainly usable, told from their text without building them: most rows of most data sets. What this says of
//! a row is what `Layout::content` says; where it does not know, that decides.
//!
//! Not here: what is wrong with a row.

use super::{Kind, Layout};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Roles that mean the same in every data set.
const ROLES: [&str; 5] = ["system", "user", "assistant", "human", "gpt"];
/// Those of them that answer.
const ANSWERS: [&str; 2] = ["assistant", "gpt"];

/// What a column must be for a row to be plain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// Anything: nobody reads it.
    Any,
    /// A text that says something.
    Text,
    /// A text, or nothing.
    Optional,
    /// Nothing: what would be in it takes a closer look.
    Nothing,
    /// A list of messages that ends in an answer.
    Messages,
}

/// The columns that have been met, and what each must be.
pub(in super::super) struct Quick {
    columns: Vec<(String, Wanted)>,
    wanted: Vec<(String, Wanted)>,
    /// How many columns a row cannot do without.
    needed: usize,
}

impl Quick {
    /// For rows of a layout of which no role is named by the job; none for layouts that always take a closer look.
    pub fn of(layout: &Layout, own_roles: bool) -> Option<Quick> {
        let each = |meaning: &str| match (layout.kind, meaning) {
            (Kind::Text, "text") => Wanted::Text,
            (Kind::Alpaca | Kind::PromptAnswer, "prompt" | "answer") => Wanted::Text,
            (Kind::Alpaca | Kind::PromptAnswer, "input") | (_, "system") => Wanted::Optional,
            (Kind::Messages | Kind::Sharegpt, "messages") => Wanted::Messages,
            _ => Wanted::Nothing,
        };
        if matches!(layout.kind, Kind::Preference | Kind::Labelled) || own_roles {
            return None;
        }
        let mut wanted: Vec<(String, Wanted)> =
            layout.columns.iter().map(|(meaning, name)| (name.clone(), each(meaning))).collect();
        let media = super::parts::MEDIA_COLUMNS.iter().map(|name| (name.to_string(), Wanted::Nothing));
        // A column that a layout reads may have any name, one of media too.
        let media: Vec<_> = media.filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name)).collect();
        wanted.extend(media);
        let needed = wanted.iter().filter(|(_, w)| matches!(w, Wanted::Text | Wanted::Messages)).count();
        // Two meanings of one column take a closer look.
        let twice = wanted.iter().enumerate().any(|(i, (name, _))| wanted[..i].iter().any(|(other, _)| other == name));
        (!twice).then_some(Quick { columns: Vec::new(), wanted, needed })
    }

    /// Takes the columns in that have been met so far.
    pub fn learn(&mut self, columns: &[String]) {
        for name in &columns[self.columns.len().min(columns.len())..] {
            let wanted = self.wanted.iter().find(|(known, _)| known == name).map_or(Wanted::Any, |(_, w)| *w);
            self.columns.push((name.clone(), wanted));
        }
    }

    /// True where the row is usable as it is and has no column that has not been met yet.
    pub fn is_plain(&self, row: &str) -> bool {
        // Halves of a character escaped alone are no text, which a parser that keeps nothing does not see.
        if memchr::memmem::find(row.as_bytes(), br"\ud").is_some()
            || memchr::memmem::find(row.as_bytes(), br"\uD").is_some()
        {
            return false;
        }
        let mut parser = serde_json::Deserializer::from_str(row);
        RowSeed(self).deserialize(&mut parser).is_ok() && parser.end().is_ok()
    }
}

/// Why a row is not plain; nobody reads it.
fn other<E: Error>() -> E {
    E::custom("")
}

struct RowSeed<'a>(&'a Quick);

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // Columns come in the same order as a rule: the next one is looked for first.
        let (mut met, mut next) = (0, 0);
        let mut seen = 0u128;
        while let Some(at) = map.next_key_seed(KeySeed { columns: &self.0.columns, next })? {
            let bit = 1u128.checked_shl(at as u32).ok_or_else(other)?;
            if seen & bit != 0 {
                return Err(other());
            }
            seen |= bit;
            let wanted = self.0.columns[at].1;
            map.next_value_seed(Is(wanted))?;
            met += usize::from(matches!(wanted, Wanted::Text | Wanted::Messages));
            next = at + 1;
        }
        if met == self.0.needed { Ok(()) } else { Err(other()) }
    }
}

/// A key by its number among the columns.
struct KeySeed<'a> {
    columns: &'a [(String, Wanted)],
    next: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<usize, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<usize, E> {
        if self.columns.get(self.next).is_some_and(|(name, _)| name == key) {
            return Ok(self.next);
        }
        self.columns.iter().position(|(name, _)| name == key).ok_or_else(other)
    }
}

/// A value that is as it must be.
#[derive(Clone, Copy)]
struct Is(Wanted);

impl<'de> DeserializeSeed<'de> for Is {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl Is {
    fn any<E: Error>(self) -> Result<(), E> {
        if self.0 == Wanted::Any { Ok(()) } else { Err(other()) }
    }
}

impl<'de> Visitor<'de> for Is {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.0 {
            Wanted::Any | Wanted::Optional => Ok(()),
            Wanted::Text if !text.trim_start().is_empty() => Ok(()),
            Wanted::Nothing if text.trim_start().is_empty() => Ok(()),
            _ => Err(other()),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if matches!(self.0, Wanted::Text | Wanted::Messages) { Err(other()) } else { Ok(()) }
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.any()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.any()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.any()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.any()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        match self.0 {
            Wanted::Any => {
                while list.next_element_seed(self)?.is_some() {}
                Ok(())
            }
            Wanted::Messages => {
                let mut last = false;
                while let Some(answers) = list.next_element_seed(MessageSeed)? {
                    last = answers;
                }
                if last { Ok(()) } else { Err(other()) }
            }
            Wanted::Nothing if list.next_element::<IgnoredAny>()?.is_none() => Ok(()),
            _ => Err(other()),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.any()?;
        while map.next_key_seed(self)?.is_some() {
            map.next_value_seed(self)?;
        }
        Ok(())
    }
}

/// A message of exactly a role and a text; true where it is an answer.
struct MessageSeed;

impl<'de> DeserializeSeed<'de> for MessageSeed {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<bool, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (mut role, mut blank) = (None, None);
        while let Some(is_role) = map.next_key_seed(MessageKey)? {
            if is_role && role.is_none() {
                role = Some(map.next_value_seed(RoleSeed)?);
            } else if !is_role && blank.is_none() {
                blank = Some(map.next_value_seed(BlankSeed)?);
            } else {
                return Err(other());
            }
        }
        match (role, blank) {
            (Some(false), Some(_)) => Ok(false),
            (Some(true), Some(false)) => Ok(true),
            _ => Err(other()),
        }
    }
}

/// Seeds that look at a text and give true or false.
macro_rules! of_text {
    ($($(#[$about:meta])* $name:ident => |$text:ident| $told:expr;)*) => {
        $(
            $(#[$about])*
            struct $name;

            impl<'de> DeserializeSeed<'de> for $name {
                type Value = bool;

                fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<bool, D::Error> {
                    d.deserialize_str(self)
                }
            }

            impl Visitor<'_> for $name {
                type Value = bool;

                fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                    f.write_str("a text")
                }

                fn visit_str<E: Error>(self, $text: &str) -> Result<bool, E> {
                    $told
                }
            }
        )*
    };
}

of_text! {
    /// True for the key of a role, false for that of what is said.
    MessageKey => |key| match key {
        "role" | "from" => Ok(true),
        "content" | "value" => Ok(false),
        _ => Err(other()),
    };
    /// True for a role that answers.
    RoleSeed => |role| if ROLES.contains(&role) { Ok(ANSWERS.contains(&role)) } else { Err(other()) };
    /// True for a text that says nothing.
    BlankSeed => |text| Ok(text.trim_start().is_empty());
}
