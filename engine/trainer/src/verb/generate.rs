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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::testing::{golden, problem_of, said};

    fn request(prompt: Prompt, temperature: f64, max_tokens: u32) -> Generate {
        Generate { model: golden("models/llama"), adapter: None, prompt, max_tokens, temperature, seed: 7 }
    }

    fn text(prompt: &str) -> Prompt {
        Prompt::Text(prompt.to_owned())
    }

    fn answer(request: Generate) -> (Outcome<Generated>, String) {
        let mut lines = Lines::new(Vec::new());
        let answer = main(request, &mut lines);
        (answer, said(&lines.out))
    }

    #[test]
    fn pieces_join_to_the_text_and_the_same_seed_writes_it_again() {
        let (first, pieces) = answer(request(text("Hello, wörld"), 0.9, 20));
        let first = first.unwrap();
        assert_eq!((first.text.as_str(), first.ids.len()), (pieces.as_str(), first.tokens as usize));
        assert!(first.prompt_tokens > 3 && first.prompt_tokens_per_second > 0.0);
        let (second, _) = answer(request(text("Hello, wörld"), 0.9, 20));
        assert_eq!(second.unwrap().ids, first.ids);
        let mut other = request(text("Hello, wörld"), 0.9, 20);
        other.seed = 8;
        assert_ne!(answer(other).0.unwrap().ids, first.ids);
    }

    #[test]
    fn messages_go_through_the_template() {
        let messages = vec![Message { role: "user".into(), content: "Hi".into() }];
        let (answer, _) = answer(request(Prompt::Messages(messages), 0.0, 3));
        let (plain, _) = self::answer(request(text("Hi"), 0.0, 3));
        assert!(answer.unwrap().prompt_tokens > plain.unwrap().prompt_tokens);
    }

    #[test]
    fn an_adapter_changes_what_is_written() {
        let mut with = request(text("Hello"), 0.0, 12);
        with.adapter = Some(golden("train/lora/adapter_final"));
        assert_ne!(answer(with).0.unwrap().ids, answer(request(text("Hello"), 0.0, 12)).0.unwrap().ids);
    }

    #[test]
    fn impossible_wishes_are_refused_by_field() {
        for temperature in [-1.0, f64::NAN, f64::INFINITY] {
            let problem = problem_of(answer(request(text("x"), temperature, 1)).0);
            assert_eq!((problem.code, problem.place.field.as_deref()), (Code::SettingInvalid, Some("temperature")));
        }
        let problem = problem_of(answer(request(text(&"long ".repeat(2000)), 0.0, 1)).0);
        assert_eq!(problem.place.field.as_deref(), Some("prompt"));
    }

    #[test]
    fn a_text_ends_where_the_context_does() {
        let answer = answer(request(text("Hello"), 0.0, 100_000)).0.unwrap();
        assert!(answer.stop == "context" || answer.stop == "end", "{}", answer.stop);
        assert!(answer.tokens < 1000);
    }
}
