//! From a record to tokens and the loss mask: a target is a token whose prediction the loss counts.
//!
//! Not here: which samples share a row (`tokens`), which records are evaluated on (`anneal-trainer read`).

mod agreement;
mod answers;

pub use agreement::Disagreement;

use crate::dataset::{Content, Conversation, Record};
use crate::template::Template;
use crate::tokenizer::{Control, Encoded, Tokenizer};
use protocol::job::{Stage, TooLong};
use protocol::{Code, Outcome, Problem};
use std::ops::Range;

const TOO_SHORT: &str = "the text is too short: nothing in it can be predicted";

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
    /// What happens to a conversation over the limit.
    pub too_long: TooLong,
    /// Lets text of the data turn into control tokens.
    pub special_tokens_in_text: bool,
    /// Training appends the end token to each text and uses all of its windows; an evaluation (false) takes texts as they
    /// are, one window each.
    pub end_of_text: bool,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Samples: one of a conversation, one a window of plain text.
    Samples(Vec<Sample>),
    /// One of a conversation whose prompt has lost this many tokens.
    Shortened(Sample, usize),
    /// Left out, and why.
    Dropped(Code, String),
}

/// What the samples of a record leave out of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cut {
    /// Nothing.
    Nothing,
    /// These tokens of the prompt.
    Prompt(Range<usize>),
    /// The record, and why.
    Everything(Code, String),
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
    /// The record in full, not cut. Errors: `TemplateInvalid` for conversations without a template that renders them,
    /// `LayoutUnfit` for what cannot serve the stage, `RowInvalid` for a record the template refuses.
    pub fn whole(&self, record: &Record) -> Outcome<Whole> {
        match &record.content {
            Content::Messages(said) => self.conversation(said),
            Content::Text(text) => self.text(text, record),
            Content::Preference { .. } => Err(unfit("preference pairs (chosen and rejected answers)", "DPO")),
            Content::Labelled { .. } => Err(unfit("labelled answers (good or bad)", "KTO")),
        }
    }

    /// The record's samples. Errors are those that stop a job: those of `whole` less `RowInvalid`, and `RowTooLong` where
    /// the job refuses such rows.
    pub fn samples(&self, record: &Record) -> Outcome<Made> {
        self.measured(record).map(|(made, _)| made)
    }

    /// The same with the record's tokens before any cut; 0 where it has none.
    pub fn measured(&self, record: &Record) -> Outcome<(Made, u64)> {
        let whole = match self.whole(record) {
            Ok(whole) => whole.sample,
            Err(p) if p.code == Code::RowInvalid => return Ok((Made::Dropped(p.code, dropped(&p)), 0)),
            Err(p) => return Err(p.row(record.row).line(record.line)),
        };
        let length = whole.ids.len() as u64;
        let made = match record.content {
            Content::Text(_) => self.windows(whole),
            _ => self.fit(whole, record)?,
        };
        Ok((made, length))
    }

    fn conversation(&self, said: &Conversation) -> Outcome<Whole> {
        let template = self.template.ok_or_else(no_template)?;
        let rendered = template.render_shielded(&said.turns, said.tools.as_ref(), false, self.control())?;
        answers::writes_calls(&said.turns, &rendered.text)?;
        let encoded = self.tokenizer.encode_with(&rendered.text, Control::PlainAt(&rendered.plain), false)?;
        let trained = match self.settings.stage {
            Stage::Sft => mask(&encoded, &answers::weighed(&said.turns, rendered.assistant)?),
            Stage::Pretrain => vec![1; encoded.ids.len()],
        };
        Ok(whole(rendered.text, encoded, trained))
    }

    /// Texts that must not become control tokens where the data says them.
    fn control(&self) -> &[String] {
        if self.settings.special_tokens_in_text { &[] } else { self.tokenizer.control_texts() }
    }

    fn text(&self, text: &str, record: &Record) -> Outcome<Whole> {
        if self.settings.stage == Stage::Sft {
            return Err(Problem::new(Code::LayoutUnfit, "the rows are raw text: use continued pre-training")
                .why("the stage sft trains answers, and rows of plain text have none")
                .field("stage")
                .remedy("set stage = \"pretrain\", or give rows with prompts and answers"));
        }
        let control = if self.settings.special_tokens_in_text { Control::Recognised } else { Control::Plain };
        let mut encoded = self.tokenizer.encode_with(text, control, record.begins)?;
        if self.settings.end_of_text && record.ends {
            let eos = self.tokenizer.eos().ok_or_else(no_end)?;
            if encoded.ids.last() != Some(&eos) {
                encoded.ids.push(eos);
                encoded.offsets.push((text.len(), text.len()));
            }
        }
        let trained = vec![1; encoded.ids.len()];
        Ok(whole(text.to_owned(), encoded, trained))
    }

    /// Windows of at most `max_length` tokens; the first token of each is no target, so one of a single token is none.
    fn windows(&self, whole: Sample) -> Made {
        let size = self.window();
        let most = if self.settings.end_of_text { usize::MAX } else { 1 };
        let parts = whole.ids.chunks(size).zip(whole.trained.chunks(size)).take(most);
        let samples: Vec<Sample> =
            parts.filter(|(ids, _)| ids.len() > 1).map(|(ids, trained)| sample(ids, trained)).collect();
        if samples.is_empty() {
            return Made::Dropped(Code::RowInvalid, TOO_SHORT.into());
        }
        Made::Samples(samples)
    }

    /// Tokens of a window of plain text.
    pub fn window(&self) -> usize {
        self.settings.max_length.max(2) as usize
    }

    fn fit(&self, whole: Sample, record: &Record) -> Outcome<Made> {
        match self.cut(&whole, &record.content) {
            Cut::Nothing => Ok(Made::Samples(vec![whole])),
            Cut::Prompt(out) => {
                let ids = [&whole.ids[..out.start], &whole.ids[out.end..]].concat();
                let trained = [&whole.trained[..out.start], &whole.trained[out.end..]].concat();
                Ok(Made::Shortened(sample(&ids, &trained), out.len()))
            }
            Cut::Everything(Code::RowTooLong, why) if self.settings.too_long == TooLong::Refuse => {
                Err(Problem::new(Code::RowTooLong, why)
                    .row(record.row)
                    .line(record.line)
                    .field("data.too_long")
                    .remedy("raise data.max_length, or set data.too_long to \"drop\" or \"truncate_prompt\""))
            }
            Cut::Everything(code, why) => Ok(Made::Dropped(code, why)),
        }
    }

    /// What a record's samples leave out. A cut prompt loses tokens left of the first answer, which keeps at least one
    /// token before it; a beginning token stays.
    pub fn cut(&self, whole: &Sample, content: &Content) -> Cut {
        if let Content::Text(_) = content {
            let short = whole.ids.len() < 2;
            return if short { Cut::Everything(Code::RowInvalid, TOO_SHORT.into()) } else { Cut::Nothing };
        }
        let Some(first) = whole.trained.iter().position(|t| *t != 0) else {
            return Cut::Everything(Code::NoAnswer, "no token of the conversation would be trained".into());
        };
        let (length, most) = (whole.ids.len(), self.settings.max_length as usize);
        if length <= most {
            return Cut::Nothing;
        }
        let why = format!("the conversation has {length} tokens, the limit is {most} tokens");
        if self.settings.too_long != TooLong::TruncatePrompt {
            return Cut::Everything(Code::RowTooLong, why);
        }
        let kept = usize::from(whole.ids.first().copied() == self.tokenizer.bos() && self.tokenizer.bos().is_some());
        let past = kept + (length - most);
        if past >= first {
            return Cut::Everything(Code::RowTooLong, format!("{why}; the prompt alone is too short to be cut"));
        }
        Cut::Prompt(kept..past)
    }
}

/// 1 for each token from the one a span begins in to the one it ends in.
pub(crate) fn mask(encoded: &Encoded, spans: &[Range<usize>]) -> Vec<u8> {
    let mut trained = vec![0; encoded.ids.len()];
    let offsets = &encoded.offsets;
    let mut from = 0;
    for span in spans {
        let inside = |o: &(usize, usize)| o.0 < o.1 && o.1 > span.start && o.0 < span.end;
        let Some(first) = offsets[from..].iter().position(inside).map(|i| from + i) else { continue };
        let past = offsets[first..].iter().position(|o| o.0 >= span.end).map_or(offsets.len(), |i| first + i);
        let last = offsets[first..past].iter().rposition(inside).map_or(first, |i| first + i);
        trained[first..=last].fill(1);
        // The last token may reach into the next span.
        from = last;
    }
    trained
}

fn sample(ids: &[u32], trained: &[u8]) -> Sample {
    let mut trained = trained.to_vec();
    if let Some(first) = trained.first_mut() {
        *first = 0;
    }
    Sample { ids: ids.to_vec(), trained }
}

fn whole(text: String, encoded: Encoded, trained: Vec<u8>) -> Whole {
    let ends = encoded.offsets.iter().map(|(_, end)| *end).collect();
    Whole { text, sample: sample(&encoded.ids, &trained), ends }
}

fn dropped(p: &Problem) -> String {
    if p.why.is_empty() { p.what.clone() } else { format!("{}: {}", p.what, p.why) }
}

fn no_template() -> Problem {
    Problem::new(Code::TemplateInvalid, "the model has no chat template, so conversations cannot be rendered for it")
        .remedy("add chat_template.jinja to the model's folder, or train on plain text with stage = \"pretrain\"")
}

/// Rows of a layout that only a later stage learns from.
fn unfit(rows: &str, stage: &str) -> Problem {
    Problem::new(
        Code::LayoutUnfit,
        format!("the rows are {rows}: they are for {stage}, which comes with a later version"),
    )
    .why("the stages sft and pretrain learn every answer there is, and one of these is not to be learnt")
    .field("stage")
    .remedy("give conversations, prompts and answers, or raw text")
}

fn no_end() -> Problem {
    Problem::new(Code::TokenizerInvalid, "the tokenizer names no end token, so texts cannot be told apart")
        .field("eos_token")
        .remedy("name it in tokenizer_config.json")
}

#[cfg(test)]
mod tests;
