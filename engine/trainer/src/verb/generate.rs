//! `generate`: text from a model, piece by piece as tokens come.
//!
//! Not here: choosing tokens (`generation.rs`), templates and tokenizers (`formats`).

use super::Lines;
use super::read::{Words, loading_limits};
use super::subject::{Subject, cpu};
use crate::generation::{Generator, Options};
use formats::template::{Turn, turn};
use protocol::verb::{Generate, Generated, Message, Prompt};
use protocol::{Code, Outcome, Problem};
use std::io::Write;
use std::time::Instant;

/// Carries out the request.
/// Errors: `SettingInvalid` (temperature, a prompt beyond the context), `TemplateInvalid`, those of the files read.
pub fn main<W: Write>(request: Generate, lines: &mut Lines<W>) -> Outcome<Generated> {
    if !(request.temperature.is_finite() && request.temperature >= 0.0) {
        let what = format!("a temperature of {} is not possible", request.temperature);
        return Err(Problem::new(Code::SettingInvalid, what).field("temperature").remedy("use 0 (greedy) or more"));
    }
    lines.progress("loading", 0, 0, "bytes")?;
    let subject = Subject::open(&request.model, request.adapter.as_deref(), None)?;
    let folder = subject.words_folder();
    let (words, prompt) = loading_limits(folder).during(|| {
        let words = Words::open(folder)?;
        let ids = ids(&words, &request.prompt)?;
        Ok((words, ids))
    })?;
    check_length(&prompt, subject.config.context)?;
    let all = (prompt.len() as u64 + u64::from(request.max_tokens)).min(u64::from(subject.config.context)) as u32;
    let Subject { config, method, weights, .. } = &subject;
    let generator = Generator::new(&cpu(), config, method, prompt.len() as u32, all, weights.as_ref())?;
    let mut ends = config.eos.clone();
    ends.extend(words.tokenizer.eos());
    let options =
        Options { max_tokens: request.max_tokens as usize, temperature: request.temperature, seed: request.seed, ends };
    write(generator, &words, &prompt, &options, lines)
}

fn ids(words: &Words, prompt: &Prompt) -> Outcome<Vec<u32>> {
    match prompt {
        // Raw text is the user's own: control tokens that it names are meant.
        Prompt::Text(text) => words.tokenizer.encode(text, true),
        Prompt::Messages(messages) => {
            let template = words.template.as_ref().ok_or_else(|| {
                Problem::new(Code::TemplateInvalid, "this model has no chat template")
                    .remedy("give the text itself with --prompt")
            })?;
            let turns: Vec<Turn> = messages.iter().map(|Message { role, content }| turn(role, content)).collect();
            template.prompt(&words.tokenizer, &turns)
        }
    }
}

fn check_length(prompt: &[u32], context: u32) -> Outcome<()> {
    let what = match prompt.len() as u64 {
        0 => "the prompt holds no token".to_owned(),
        n if n > u64::from(context) => format!("the prompt has {n} tokens; the model's context has room for {context}"),
        _ => return Ok(()),
    };
    Err(Problem::new(Code::SettingInvalid, what).field("prompt"))
}

fn write<W: Write>(
    mut generator: Generator,
    words: &Words,
    prompt: &[u32],
    options: &Options,
    lines: &mut Lines<W>,
) -> Outcome<Generated> {
    let mut decoder = words.tokenizer.decoder();
    let mut text = String::new();
    let begin = Instant::now();
    let mut first = None;
    let mut say = |piece: String, lines: &mut Lines<W>| {
        text.push_str(&piece);
        if piece.is_empty() { Ok(()) } else { lines.text(&piece) }
    };
    let (ids, stop) = generator.write(prompt, options, &mut |id| {
        first.get_or_insert_with(Instant::now);
        say(decoder.push(id)?, lines)
    })?;
    say(decoder.finish()?, lines)?;
    let end = Instant::now();
    let first = first.unwrap_or(end);
    let speed = |tokens: usize, from: Instant, to: Instant| match (to - from).as_secs_f64() {
        seconds if seconds > 0.0 => tokens as f64 / seconds,
        _ => 0.0,
    };
    Ok(Generated {
        text,
        tokens: ids.len() as u32,
        prompt_tokens: prompt.len() as u32,
        prompt_tokens_per_second: speed(prompt.len(), begin, first),
        tokens_per_second: speed(ids.len().saturating_sub(1), first, end),
        stop: stop.word().to_owned(),
        ids,
    })
}
