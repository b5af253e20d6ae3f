//! What is trained of a record, and what is cut or left out.

use super::*;
use crate::template::{Turn, turn};
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
    Record { file: 0, row: 3, line: 5, begins: true, ends: true, content, converted: Vec::new() }
}

fn chat(question: &str, answer: &str) -> Record {
    said(vec![turn("user", question), turn("assistant", answer)], None)
}

fn said(turns: Vec<Turn>, tools: Option<Turn>) -> Record {
    record(Content::Messages(Conversation { turns, tools }))
}

fn one(made: Made) -> Sample {
    match made {
        Made::Samples(samples) if samples.len() == 1 => samples[0].clone(),
        Made::Shortened(sample, _) => sample,
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

fn turns(text: &str) -> Vec<Turn> {
    serde_json::from_str(text).unwrap()
}

fn trained_text(f: &Fixture, sample: &Sample) -> String {
    let ids: Vec<u32> = sample.ids.iter().zip(&sample.trained).filter(|(_, t)| **t == 1).map(|(id, _)| *id).collect();
    f.tokenizer.decode(&ids, false).unwrap()
}

#[test]
fn an_answer_of_weight_0_is_context_and_not_learnt() {
    let f = fixture();
    let sampler = f.sampler(settings(Stage::Sft, 1000, TooLong::Drop));
    for key in ["weight", "loss_weight"] {
        let row = |weight: &str| {
            said(
                turns(&format!(
                    r#"[{{"role":"user","content":"a"}},{{"role":"assistant","content":"bee","{key}":{weight}}},
                {{"role":"user","content":"c"}},{{"role":"assistant","content":"dee","{key}":1.0}}]"#
                )),
                None,
            )
        };
        assert_eq!(trained_text(&f, &one(sampler.samples(&row("0")).unwrap())), "dee<|im_end|>");
        assert_eq!(trained_text(&f, &one(sampler.samples(&row("true")).unwrap())), "bee<|im_end|>dee<|im_end|>");
        let Made::Dropped(Code::RowInvalid, why) = sampler.samples(&row("0.5")).unwrap() else { panic!() };
        assert!(why.contains("0.5"), "{why}");
    }
    let all = turns(r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":0}]"#);
    assert!(matches!(sampler.samples(&said(all, None)).unwrap(), Made::Dropped(Code::NoAnswer, _)));
}

#[test]
fn preference_pairs_and_labelled_answers_refuse_the_stages_there_are_by_name() {
    let f = fixture();
    let answer = |text| vec![turn("assistant", text)];
    let pair = Content::Preference { asked: vec![turn("user", "a")], chosen: answer("b"), rejected: answer("c") };
    let labelled = Content::Labelled { turns: vec![turn("user", "a"), turn("assistant", "b")], good: true };
    for (content, word) in [(pair, "DPO"), (labelled, "KTO")] {
        for stage in [Stage::Sft, Stage::Pretrain] {
            let problem = f.sampler(settings(stage, 100, TooLong::Drop)).samples(&record(content.clone())).unwrap_err();
            assert!(problem.code == Code::LayoutUnfit && problem.what.contains(word), "{problem}");
        }
    }
}

#[test]
fn a_call_that_the_template_does_not_write_is_no_empty_answer() {
    let f = fixture();
    let row = said(
        turns(
            r#"[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"move","arguments":{"x":1}}}]}]"#,
        ),
        None,
    );
    let source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let template = Template::parse(source, None, None).unwrap();
    let settings = settings(Stage::Sft, 1000, TooLong::Drop);
    let sampler = Sampler { tokenizer: &f.tokenizer, template: Some(&template), settings };
    let Made::Dropped(Code::RowInvalid, why) = sampler.samples(&row).unwrap() else { panic!() };
    assert!(why.contains("move"), "{why}");
}

#[test]
fn control_tokens_in_the_definition_of_a_tool_stay_plain_text() {
    let f = fixture();
    let source = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let template = Template::parse(source, None, None).unwrap();
    let settings = settings(Stage::Sft, 1000, TooLong::Drop);
    let sampler = Sampler { tokenizer: &f.tokenizer, template: Some(&template), settings };
    let tools: Turn = serde_json::from_str(r#"[{"type":"function","function":{"name":"x<|im_end|>"}}]"#).unwrap();
    let talk = vec![turn("user", "a"), turn("assistant", "b")];
    let whole = sampler.whole(&said(talk, Some(tools))).unwrap();
    assert!(whole.text.contains("x<|im_end|>"));
    let controls = whole.sample.ids.iter().filter(|id| f.tokenizer.is_special(**id)).count();
    assert_eq!(controls, 4, "{}", whole.text);
}

/// What is said to disagree under this template.
fn disagreements(source: &str, record: &Record) -> Vec<Disagreement> {
    let f = fixture();
    let template = Template::parse(source, f.tokenizer.bos_text(), f.tokenizer.eos_text()).unwrap();
    let settings = settings(Stage::Sft, 1000, TooLong::Drop);
    Sampler { tokenizer: &f.tokenizer, template: Some(&template), settings }.disagreements(record).unwrap()
}

#[test]
fn marks_that_leave_out_the_end_token_are_told_and_followed() {
    let template = |answer: &str| {
        format!(
            "{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{{% if m.role == 'assistant' %}}{answer}{{% else %}}{{{{ m.content }}}}<|im_end|>{{% endif %}}\n{{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>assistant\n{{% endif %}}"
        )
    };
    let good = template("{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}");
    assert_eq!(disagreements(&good, &chat("a", "b")), []);
    let bad = template("{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>");
    let found = disagreements(&bad, &chat("a", "b"));
    let kinds: Vec<&str> = found.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, ["end", "marks"]);
    assert!(found[1].text.contains("\"b\"") && found[1].text.contains("b<|im_end|>"), "{found:?}");
}

#[test]
fn what_template_and_tokenizer_disagree_on_is_told() {
    let other = "{% for m in messages %}<|turn|>{{ m.content }}{% if m.role == 'assistant' %}<|turn_end|>{% endif %}{% endfor %}";
    let found = disagreements(other, &chat("a", "b"));
    let kinds: Vec<&str> = found.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, ["unknown", "end"]);
    assert!(found[0].text.contains("<|turn|>"), "{found:?}");
    let tools: Turn = serde_json::from_str(r#"[{"type":"function","function":{"name":"look"}}]"#).unwrap();
    let plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let with_tools = said(vec![turn("user", "a"), turn("assistant", "b")], Some(tools));
    assert_eq!(disagreements(plain, &with_tools)[0].kind, "tools");
    assert_eq!(disagreements(plain, &chat("a", "b")), []);
}

#[test]
fn a_conversation_begins_once_even_where_the_tokenizer_adds_a_beginning_of_its_own() {
    let tokenizer = named("llama3").unwrap();
    let bos = tokenizer.bos().unwrap();
    assert_eq!(tokenizer.encode("a", false).unwrap()[0], bos, "the tokenizer adds one by itself");
    let begun = |source: &str| {
        let template = Template::parse(source, tokenizer.bos_text(), tokenizer.eos_text()).unwrap();
        let settings = settings(Stage::Sft, 1000, TooLong::Drop);
        let sampler = Sampler { tokenizer: &tokenizer, template: Some(&template), settings };
        let ids = one(sampler.samples(&chat("a", "b")).unwrap()).ids;
        let kinds: Vec<&str> = sampler.disagreements(&chat("a", "b")).unwrap().iter().map(|found| found.kind).collect();
        (ids.iter().filter(|id| **id == bos).count(), kinds)
    };
    let talk =
        "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
    assert_eq!(begun(&format!("{{{{ bos_token }}}}{talk}")), (1, vec![]));
    assert_eq!(begun(&format!("{{{{ bos_token }}}}{{{{ bos_token }}}}{talk}")), (2, vec!["begin"]));
}

#[test]
fn every_conversation_of_the_reference_has_its_mask_under_templates_without_marks() {
    let f = fixture();
    let sampler = f.sampler(settings(Stage::Sft, 1000, TooLong::Drop));
    let several = said(
        vec![turn("system", "s"), turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", "d")],
        None,
    );
    assert_eq!(trained_text(&f, &one(sampler.samples(&several).unwrap())), "b<|im_end|>d<|im_end|>");
}
