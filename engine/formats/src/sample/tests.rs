//! What is trained of a record, and what is cut or left out.

use super::*;
use crate::template::turn;
use crate::tokenizer::tests::{golden, named};

struct Fixture {
    tokenizer: Tokenizer,
    template: Template,
}

fn fixture() -> Fixture {
    let tokenizer = named("qwen").unwrap();
    Fixture { tokenizer, template: Template::open(&golden("models/llama")).unwrap().unwrap() }
}

fn settings(stage: Stage, max_length: u32, too_long: TooLong) -> Settings {
    Settings { stage, max_length, too_long, special_tokens_in_text: false, end_of_text: true }
}

impl Fixture {
    fn sampler(&self, settings: Settings) -> Sampler<'_> {
        Sampler { tokenizer: &self.tokenizer, template: Some(&self.template), settings }
    }
}

fn record(content: Content) -> Record {
    Record { file: 0, row: 3, line: 5, begins: true, ends: true, content }
}

fn chat(question: &str, answer: &str) -> Record {
    record(Content::Messages(vec![turn("user", question), turn("assistant", answer)]))
}

fn one(made: Made) -> Sample {
    match made {
        Made::Samples(samples) if samples.len() == 1 => samples[0].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_answer_and_its_end_token_are_trained() {
    let f = fixture();
    let sampler = f.sampler(settings(Stage::Sft, 1000, TooLong::Drop));
    let sample = one(sampler.samples(&chat("Hi", "Yo")).unwrap());
    let trained: Vec<u32> =
        sample.ids.iter().zip(&sample.trained).filter(|(_, t)| **t == 1).map(|(id, _)| *id).collect();
    assert_eq!(f.tokenizer.decode(&trained, false).unwrap(), "Yo<|im_end|>");
    let whole = sampler.whole(&chat("Hi", "Yo")).unwrap();
    assert_eq!((whole.ends.len(), *whole.ends.last().unwrap()), (whole.sample.ids.len(), whole.text.len()));
}

#[test]
fn the_real_end_token_is_a_target_once_even_where_padding_is_the_same() {
    let f = fixture();
    let sampler = f.sampler(settings(Stage::Sft, 1000, TooLong::Drop));
    let sample = one(sampler.samples(&chat("a<|im_end|>b", "c<|im_end|>d")).unwrap());
    let ends = sample.ids.iter().zip(&sample.trained).filter(|(id, t)| **id == 2 && **t == 1).count();
    assert_eq!(ends, 1);
}

#[test]
fn a_row_over_the_limit_is_dropped_cut_on_its_left_or_refused_as_asked() {
    let f = fixture();
    let long = chat(&"word ".repeat(100), "short");
    let full = one(f.sampler(settings(Stage::Sft, 10_000, TooLong::Drop)).samples(&long).unwrap());
    let n = full.ids.len() as u32;
    let at = |max, rule| f.sampler(settings(Stage::Sft, max, rule)).samples(&long);
    assert!(matches!(at(n, TooLong::Drop).unwrap(), Made::Samples(_)));
    let Made::Dropped(code, why) = at(n - 1, TooLong::Drop).unwrap() else { panic!() };
    assert!(code == Code::RowTooLong && why.contains(&format!("{n} tokens")), "{why}");
    let problem = at(n - 1, TooLong::Refuse).unwrap_err();
    assert_eq!((problem.code, problem.place.row, problem.place.line), (Code::RowTooLong, Some(3), Some(5)));
    let cut = one(at(n - 50, TooLong::TruncatePrompt).unwrap());
    assert_eq!(cut.ids, full.ids[50..]);
    assert_eq!(cut.trained.iter().filter(|t| **t == 1).count(), full.trained.iter().filter(|t| **t == 1).count());
    let answer = chat("q", &"answer ".repeat(100));
    let made = f.sampler(settings(Stage::Sft, 40, TooLong::TruncatePrompt)).samples(&answer).unwrap();
    assert!(matches!(made, Made::Dropped(Code::RowTooLong, _)));
}

#[test]
fn a_cut_prompt_keeps_its_beginning_token() {
    let tokenizer = named("llama3").unwrap();
    let source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
    let template = Template::parse(source, tokenizer.bos_text(), tokenizer.eos_text()).unwrap();
    let settings = settings(Stage::Sft, 20, TooLong::TruncatePrompt);
    let sampler = Sampler { tokenizer: &tokenizer, template: Some(&template), settings };
    let sample = one(sampler.samples(&chat(&"q".repeat(100), "yes")).unwrap());
    assert_eq!((sample.ids.len(), sample.ids[0], sample.trained[0]), (20, 0, 0));
    assert_eq!(*sample.trained.last().unwrap(), 1);
}

#[test]
fn plain_text_is_trained_whole_in_windows_and_ends_once() {
    let f = fixture();
    let text = record(Content::Text("one two three four five six seven eight nine ten".into()));
    let sampler = f.sampler(settings(Stage::Pretrain, 8, TooLong::Drop));
    let Made::Samples(windows) = sampler.samples(&text).unwrap() else { panic!() };
    assert!(windows.len() > 2 && windows.iter().all(|w| w.ids.len() <= 8 && w.trained[0] == 0));
    let ids: Vec<u32> = windows.iter().flat_map(|w| w.ids.clone()).collect();
    assert_eq!(ids.iter().filter(|id| Some(**id) == f.tokenizer.eos()).count(), 1);
    assert_eq!(ids.last().copied(), f.tokenizer.eos());
    let middle = Record { ends: false, ..text.clone() };
    assert!(!one(f.sampler(settings(Stage::Pretrain, 1000, TooLong::Drop)).samples(&middle).unwrap()).ids.contains(&2));
    let mut evaluation = settings(Stage::Pretrain, 8, TooLong::Drop);
    evaluation.end_of_text = false;
    assert_eq!(one(f.sampler(evaluation).samples(&text).unwrap()).ids, windows[0].ids);
}

#[test]
fn raw_text_is_no_conversation_and_a_conversation_needs_a_template() {
    let f = fixture();
    let sft = settings(Stage::Sft, 100, TooLong::Drop);
    let problem = f.sampler(sft.clone()).samples(&record(Content::Text("x y z".into()))).unwrap_err();
    assert_eq!(problem.code, Code::LayoutUnfit);
    assert!(problem.what.contains("raw text"), "{problem}");
    let bare = Sampler { tokenizer: &f.tokenizer, template: None, settings: sft };
    let problem = bare.samples(&chat("a", "b")).unwrap_err();
    assert!(problem.code == Code::TemplateInvalid && problem.remedy.contains("chat_template"), "{problem}");
}

#[test]
fn a_conversation_the_template_refuses_is_left_out_with_its_reason() {
    let f = fixture();
    let source = "{% if messages|length > 1 %}{{ raise_exception('only one') }}{% endif %}x";
    let template = Template::parse(source, None, None).unwrap();
    let settings = settings(Stage::Sft, 100, TooLong::Drop);
    let sampler = Sampler { tokenizer: &f.tokenizer, template: Some(&template), settings };
    let Made::Dropped(code, why) = sampler.samples(&chat("a", "b")).unwrap() else { panic!() };
    assert!(code == Code::RowInvalid && why.contains("only one"), "{why}");
}
