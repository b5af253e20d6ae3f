//! From a record to tokens and the loss mask.

use crate::dataset::Record;
use crate::template::Template;
use crate::tokenizer::Tokenizer;
use protocol::job::{Stage, TooLong};
use protocol::{Code, Outcome, Problem};

/// Tokens of one sample and which of them are targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Token ids.
    pub ids: Vec<u32>,
    /// 1 where the loss counts predicting this token; as long as `ids`; the first is always 0.
    pub trained: Vec<u8>,
}

/// What shapes samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Stage.
    pub stage: Stage,
    /// Longest sample in tokens.
    pub max_length: u32,
    /// What happens to a sample over the limit.
    pub too_long: TooLong,
    /// Lets text of the data turn into control tokens.
    pub special_tokens_in_text: bool,
    /// Append the end token to each plain text, as training does; an evaluation takes texts as they are.
    pub end_of_text: bool,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Samples: one of a conversation, one a window of plain text.
    Samples(Vec<Sample>),
    /// Left out, and why.
    Dropped(Code, String),
}

/// One record as rendered and tokenised, before any cut; what a preview shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// Rendered text.
    pub text: String,
    /// Tokens and mask.
    pub sample: Sample,
    /// End of each token's text in `text`, in bytes.
    pub ends: Vec<usize>,
}

/// Turns records into samples.
pub struct Sampler<'a> {
    /// Tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Chat template; needed for conversations.
    pub template: Option<&'a Template>,
    /// Settings.
    pub settings: Settings,
}

impl Sampler<'_> {
    /// The record in full, not cut.
    pub fn whole(&self, record: &Record) -> Outcome<Whole> {
        todo!("{record:?}")
    }

    /// The record's samples. Errors are those that stop a job: no template for conversations, `TooLong::Refuse`.
    pub fn samples(&self, record: &Record) -> Result<Made, Problem> {
        todo!("{record:?}")
    }
}
