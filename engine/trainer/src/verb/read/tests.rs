//! Data in, token cache or preview out, over the golden toy model.

use super::carry_out;
use crate::verb::Lines;
use crate::verb::testing::{golden, problem_of};
use protocol::facts::{Preview, TokenFacts};
use protocol::job::{Auto, RowAction};
use protocol::verb::Read;
use protocol::{Code, JobSpec, Outcome};
use std::path::{Path, PathBuf};

const QUESTIONS: &str = concat!(
    r#"{"instruction":"Say A","input":"","output":"A"}"#,
    "\n",
    r#"{"instruction":"Say B","input":"now","output":"B"}"#,
    "\n",
    r#"{"instruction":"Say nothing","input":"","output":""}"#,
    "\n",
    r#"{"instruction":"Say D","input":"","output":"Dee"}"#,
    "\n"
);

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Desk {
        Desk { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn questions(&self) -> JobSpec {
        spec("sft", &format!("path = {:?}", golden("models/llama")), &self.file("questions.jsonl", QUESTIONS))
    }

    fn tokenise(&self, spec: &JobSpec) -> Outcome<TokenFacts> {
        self.tokenise_below(spec, 0)
    }

    fn tokenise_below(&self, spec: &JobSpec, vocab: u32) -> Outcome<TokenFacts> {
        let (spec, home) = (Box::new(spec.clone()), self.home());
        let request = Read::Tokenise { spec, home, max_length: 128, vocab, end_of_text: true };
        carry_out(request, &mut Lines::new(Vec::new())).map(|value| serde_json::from_value(value).unwrap())
    }

    fn preview(&self, spec: &JobSpec, row: u64, max_length: u32) -> Outcome<Preview> {
        let request = Read::Preview { spec: Box::new(spec.clone()), row, max_length };
        carry_out(request, &mut Lines::new(Vec::new())).map(|value| serde_json::from_value(value).unwrap())
    }
}

fn spec(stage: &str, model: &str, data: &Path) -> JobSpec {
    let text = format!("stage = \"{stage}\"\n[model]\n{model}\n[data]\ntrain = [{data:?}]\n");
    JobSpec::parse(&text, &[], Path::new("/")).unwrap()
}

#[test]
fn rows_become_tokens_once_and_are_found_again() {
    let desk = Desk::new();
    let spec = desk.questions();
    let facts = desk.tokenise(&spec).unwrap();
    assert_eq!((facts.train.samples, facts.evaluation.samples), (3, 0));
    assert_eq!(facts.train.dropped.get("empty_answer"), Some(&1));
    assert!(facts.train.targets > 0 && facts.train.targets < facts.train.tokens);
    assert!(facts.tokenizer.join("tokenizer.json").is_file());
    let written = |facts: &TokenFacts| std::fs::metadata(facts.path.join("header.json")).unwrap().modified().unwrap();
    let first = written(&facts);
    assert_eq!(desk.tokenise(&spec).unwrap(), facts);
    assert_eq!(written(&facts), first, "the cache was written twice");
    let left: Vec<_> = std::fs::read_dir(desk.home().join("tokens")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn whatever_shapes_tokens_makes_another_cache() {
    let desk = Desk::new();
    let spec = desk.questions();
    let first = desk.tokenise(&spec).unwrap().fingerprint;
    let changes: [fn(&mut JobSpec); 4] = [
        |spec| spec.data.packing = false,
        |spec| spec.data.special_tokens_in_text = true,
        |spec| spec.data.evaluation = protocol::job::EvaluationData::Fraction(0.3),
        |spec| spec.stage = protocol::job::Stage::Pretrain,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut other = spec.clone();
        change(&mut other);
        assert_ne!(desk.tokenise(&other).unwrap().fingerprint, first, "change {i}");
    }
    let mut same = spec.clone();
    same.optimizer.learning_rate = Auto::Is(0.5);
    assert_eq!(desk.tokenise(&same).unwrap().fingerprint, first);
    desk.file("questions.jsonl", &QUESTIONS.replace("Dee", "Doo"));
    assert_ne!(desk.tokenise(&spec).unwrap().fingerprint, first);
}

#[test]
fn a_damaged_cache_is_made_anew() {
    let desk = Desk::new();
    let facts = desk.tokenise(&desk.questions()).unwrap();
    let tokens = std::fs::read_dir(facts.path.join("train")).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&tokens).unwrap();
    std::fs::write(&tokens, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(desk.tokenise(&desk.questions()).unwrap(), facts);
    assert_eq!(std::fs::read(&tokens).unwrap(), whole);
}

#[test]
fn a_refused_class_of_rows_refuses_the_job_and_names_the_row() {
    let desk = Desk::new();
    let mut spec = desk.questions();
    spec.data.rows.insert("empty_answer".into(), RowAction::Refuse);
    let problem = problem_of(desk.tokenise(&spec));
    assert_eq!((problem.code, problem.place.row), (Code::EmptyAnswer, Some(3)));
}

#[test]
fn a_gguf_file_gives_the_tokens_of_the_folder_it_was_made_of_and_its_files() {
    let desk = Desk::new();
    let to = desk.folder.path().join("exported");
    let request = protocol::verb::Export {
        from: golden("models/llama"),
        to: to.clone(),
        format: "gguf".into(),
        dtype: "q8_0".into(),
        base: None,
    };
    crate::verb::export::main(request, &mut Lines::new(Vec::new())).unwrap();
    let data = desk.file("questions.jsonl", QUESTIONS);
    let of = |model: &Path| desk.tokenise(&spec("sft", &format!("path = {model:?}"), &data)).unwrap();
    let (first, second) = (of(&golden("models/llama")), of(&to.join("model.gguf")));
    assert_eq!(first.train, second.train);
    assert_eq!((first.vocab, first.eos), (second.vocab, second.eos));
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        assert!(second.tokenizer.join(name).is_file(), "{name}");
    }
}

#[test]
fn plain_text_is_for_pretraining_only() {
    let desk = Desk::new();
    let text = desk.file("text.jsonl", "{\"text\":\"one two three\"}\n{\"text\":\"four five six\"}\n");
    let model = format!("path = {:?}", golden("models/llama"));
    let problem = problem_of(desk.tokenise(&spec("sft", &model, &text)));
    assert_eq!((problem.code, problem.place.row), (Code::LayoutUnfit, Some(1)));
    let facts = desk.tokenise(&spec("pretrain", &model, &text)).unwrap();
    assert_eq!(facts.train.targets + facts.train.samples, facts.train.tokens, "all but each first token");
}

#[test]
fn a_preset_without_a_tokenizer_trains_one_and_always_the_same() {
    let text = "the cat sat on the mat and the dog sat on the cat\n".repeat(50);
    let made: Vec<TokenFacts> = (0..2)
        .map(|_| {
            let desk = Desk::new();
            let file = desk.file("text.txt", &text);
            desk.tokenise(&spec("pretrain", "preset = \"nano\"", &file)).unwrap()
        })
        .collect();
    assert_eq!(made[0].tokenizer_fingerprint, made[1].tokenizer_fingerprint);
    assert!((257..=512).contains(&made[0].vocab), "{}", made[0].vocab);
    assert_eq!(made[0].train.targets, made[1].train.targets);
}

#[test]
fn ids_beyond_the_models_vocabulary_are_refused() {
    let desk = Desk::new();
    let problem = problem_of(desk.tokenise_below(&desk.questions(), 40));
    assert_eq!(problem.code, Code::TokenizerInvalid);
    assert!(problem.what.contains("40"), "{problem}");
}

#[test]
fn rows_that_are_all_too_long_say_how_long() {
    let desk = Desk::new();
    let spec = desk.questions();
    let (spec, home) = (Box::new(spec), desk.home());
    let request = Read::Tokenise { spec, home, max_length: 4, vocab: 0, end_of_text: true };
    let problem = problem_of(carry_out(request, &mut Lines::new(Vec::new())));
    assert_eq!(problem.code, Code::NoUsableRows);
    assert!(problem.why.contains("row_too_long") && problem.remedy.contains("max_length"), "{problem}");
    assert_eq!(std::fs::read_dir(desk.home().join("tokens")).unwrap().count(), 0, "something was left");
}

#[test]
fn a_preview_shows_what_is_trained_and_what_would_be_cut() {
    let desk = Desk::new();
    let preview = desk.preview(&desk.questions(), 2, 1000).unwrap();
    let all: String = preview.tokens.iter().map(|token| token.text.as_str()).collect();
    let trained: String =
        preview.tokens.iter().filter(|token| token.trained).map(|token| token.text.as_str()).collect();
    assert_eq!(all, preview.text);
    assert!(preview.text.contains("Say B\nnow"), "{}", preview.text);
    assert!(trained.starts_with('B') && !trained.contains("Say"), "{trained:?}");
    assert_eq!(preview.length, preview.tokens.len() as u64);
    let preview = desk.preview(&desk.questions(), 2, 4).unwrap();
    assert!(preview.truncated && preview.problems[0].code == Code::RowTooLong);
    assert!(preview.tokens.iter().all(|token| token.cut && !token.trained), "the whole row is left out");
    let chips: Vec<&str> = preview.tokens.iter().filter(|t| t.special).map(|t| t.text.as_str()).collect();
    assert!(chips.iter().all(|text| text.starts_with('<')) && !chips.is_empty(), "{chips:?}");
}

#[test]
fn a_preview_follows_the_stage_and_what_is_done_with_long_rows() {
    let desk = Desk::new();
    let mut spec = desk.questions();
    let whole = desk.preview(&spec, 2, 1000).unwrap();
    assert!(!whole.truncated && whole.tokens.iter().all(|token| !token.cut));
    spec.data.too_long = protocol::job::TooLong::TruncatePrompt;
    let most = whole.length as u32 - 2;
    let cut = desk.preview(&spec, 2, most).unwrap();
    let out: Vec<usize> = (0..cut.tokens.len()).filter(|at| cut.tokens[*at].cut).collect();
    let first = cut.tokens.iter().position(|token| token.trained).unwrap();
    assert!(out.len() == 2 && out.iter().all(|at| *at < first), "{out:?}, the answer begins at {first}");
    assert!(cut.truncated && cut.problems[0].code == Code::RowTooLong);
    spec.stage = protocol::job::Stage::Pretrain;
    let all = desk.preview(&spec, 2, 1000).unwrap();
    assert!(all.tokens.iter().skip(1).all(|token| token.trained) && !all.tokens[0].trained);
}

#[test]
fn a_preview_of_text_shows_windows_and_the_end() {
    let desk = Desk::new();
    let text = desk.file("text.jsonl", "{\"text\":\"one two three four five six\"}\n");
    let spec = spec("pretrain", &format!("path = {:?}", golden("models/llama")), &text);
    let preview = desk.preview(&spec, 1, 4).unwrap();
    let begins: Vec<usize> = (0..preview.tokens.len()).filter(|at| !preview.tokens[*at].trained).collect();
    assert_eq!(begins, (0..preview.tokens.len()).step_by(4).collect::<Vec<_>>());
    let last = preview.tokens.last().unwrap();
    assert!(last.special && !last.text.is_empty() && !preview.truncated, "{last:?}");
}

#[test]
fn a_preview_needs_no_tokenizer_of_its_own_for_fresh_weights() {
    let desk = Desk::new();
    let file = desk.file("text.txt", &"the cat sat on the mat\n".repeat(50));
    let preview = desk.preview(&spec("pretrain", "preset = \"nano\"", &file), 1, 64).unwrap();
    assert!(preview.tokens.iter().filter(|token| token.trained).count() > 10);
}

#[test]
fn a_preview_of_an_unusable_or_missing_row_says_so() {
    let desk = Desk::new();
    let preview = desk.preview(&desk.questions(), 3, 100).unwrap();
    assert_eq!((preview.row, preview.problems[0].code), (3, Code::EmptyAnswer));
    let problem = problem_of(desk.preview(&desk.questions(), 5, 100));
    assert_eq!(problem.code, Code::NotFound);
    assert!(problem.what.contains('4'), "{problem}");
}

#[test]
fn a_broken_tokenizer_is_named_where_the_user_put_it() {
    let desk = Desk::new();
    let tokenizer = desk.file("mine.json", "{\"model\":");
    let text = desk.file("text.txt", "one two three\n");
    let model = format!("preset = \"nano\"\ntokenizer = {tokenizer:?}");
    let problem = problem_of(desk.tokenise(&spec("pretrain", &model, &text)));
    assert_eq!(problem.code, Code::TokenizerInvalid);
    assert!(problem.place.file.as_deref().unwrap_or_default().ends_with("mine.json"), "{problem}");
}

const CHAT: &str = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}"#;

fn chat(question: &str, answer: &str) -> String {
    serde_json::json!({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})
        .to_string()
}

impl Desk {
    /// A job over these rows on the golden toy model.
    fn job(&self, rows: &[String]) -> JobSpec {
        spec("sft", &format!("path = {:?}", golden("models/llama")), &self.file("rows.jsonl", &rows.join("\n")))
    }

    fn tokenise_within(&self, spec: &JobSpec, max_length: u32) -> Outcome<TokenFacts> {
        let (spec, home) = (Box::new(spec.clone()), self.home());
        let request = Read::Tokenise { spec, home, max_length, vocab: 0, end_of_text: true };
        carry_out(request, &mut Lines::new(Vec::new())).map(|value| serde_json::from_value(value).unwrap())
    }

    /// Tokens of a row as a preview shows them.
    fn length(&self, rows: &[String], row: u64) -> u64 {
        self.preview(&self.job(rows), row, 100_000).unwrap().length
    }
}

#[test]
fn a_damaged_row_refuses_the_job_until_the_user_decides_and_is_then_counted_and_said() {
    let desk = Desk::new();
    let mut spec = desk.job(&[CHAT, "{\"messages\": [}", CHAT, "nothing"].map(str::to_owned));
    let problem = problem_of(desk.tokenise(&spec));
    assert_eq!((problem.code, problem.place.line, problem.place.row), (Code::RowNotJson, Some(2), Some(2)));
    let sentence = problem.sentence();
    assert!(sentence.contains("rows.jsonl") && sentence.contains("not JSON"), "{sentence}");
    assert!(sentence.contains("2 of 4 rows"), "{sentence}");
    assert_eq!(problem.ways[0].set["data.rows.row_not_json"], "skip");
    spec.data.rows.insert("row_not_json".into(), RowAction::Skip);
    let facts = desk.tokenise(&spec).unwrap();
    assert_eq!((facts.train.samples, facts.train.dropped["row_not_json"]), (2, 2));
    let note = facts.notes.iter().find(|note| note.contains("row_not_json")).unwrap();
    assert!(note.contains("2 of 4 rows") && note.contains("line 2"), "{note}");
}

#[test]
fn a_decision_makes_another_cache() {
    let desk = Desk::new();
    let number = r#"{"messages":[{"role":"user","content":1},{"role":"assistant","content":"a"}]}"#;
    let mut spec = desk.job(&[CHAT.to_owned(), number.to_owned()]);
    assert_eq!(problem_of(desk.tokenise(&spec)).code, Code::ValueNotText);
    spec.data.rows.insert("value_not_text".into(), RowAction::Skip);
    let skipped = desk.tokenise(&spec).unwrap();
    spec.data.rows.insert("value_not_text".into(), RowAction::Convert);
    let converted = desk.tokenise(&spec).unwrap();
    assert_ne!(skipped.fingerprint, converted.fingerprint);
    assert_eq!((skipped.train.samples, converted.train.samples), (1, 2));
    assert!(converted.notes.iter().any(|note| note.contains("converted (value_not_text)")), "{:?}", converted.notes);
    spec.data.roles.insert("bot".into(), "user".into());
    assert_ne!(desk.tokenise(&spec).unwrap().fingerprint, converted.fingerprint);
}

#[test]
fn an_empty_assistant_turn_is_left_out_by_row_and_the_rest_trains() {
    let desk = Desk::new();
    let null = chat("x", "").replace("\"\"", "null");
    let spec = desk.job(&[chat("q", "yes"), chat("q", ""), null, chat("q", "   "), chat("q", "no")]);
    let facts = desk.tokenise(&spec).unwrap();
    assert_eq!((facts.train.samples, facts.train.dropped["empty_answer"]), (2, 3));
    assert!(facts.notes.iter().any(|note| note.contains("3 of 5 rows") && note.contains("row 2")), "{:?}", facts.notes);
}

#[test]
fn preference_pairs_are_refused_by_name_for_the_stages_there_are() {
    let desk = Desk::new();
    let spec = desk.job(&[r#"{"prompt":"q","chosen":"b","rejected":"c"}"#.to_owned()]);
    let problem = problem_of(desk.tokenise(&spec));
    assert!(problem.code == Code::LayoutUnfit && problem.what.contains("preference"), "{problem}");
}

/// Rows of exactly these many tokens: an answer of one word behind a question that fills the rest.
fn rows_of(desk: &Desk, lengths: &[u64]) -> Vec<String> {
    let base = desk.length(&[chat("", "yes").replace("\"\"", "\"a\"")], 1);
    let row = |length: &u64| {
        // Letters apart from each other are a token each in this tokenizer, or two; the length is found by trying.
        let mut question = "a".to_owned();
        let mut now = base;
        while now < *length {
            let more = ((*length - now) / 2).max(1);
            let grown = format!("{question}{}", "7#".repeat(more as usize));
            let one = format!("{question}7");
            question = if desk.length(&[chat(&grown, "yes")], 1) <= *length { grown } else { one };
            now = desk.length(&[chat(&question, "yes")], 1);
        }
        assert_eq!(now, *length);
        chat(&question, "yes")
    };
    lengths.iter().map(row).collect()
}

#[test]
fn samples_longer_than_the_limit_are_counted_in_tokens_and_dropped_cut_or_refused_as_chosen() {
    let desk = Desk::new();
    let rows = rows_of(&desk, &[60, 64, 65, 5000]);
    let mut spec = desk.job(&rows);
    spec.data.packing = false;
    let dropped = desk.tokenise_within(&spec, 64).unwrap();
    assert_eq!((dropped.train.samples, dropped.train.dropped["row_too_long"], dropped.train.longest), (2, 2, 64));
    assert!(dropped.notes.iter().any(|note| note.contains("2 of 4 rows exceed 64 tokens")), "{:?}", dropped.notes);

    spec.data.too_long = protocol::job::TooLong::TruncatePrompt;
    let cut = desk.tokenise_within(&spec, 64).unwrap();
    assert_eq!((cut.train.samples, cut.train.longest), (4, 64));
    assert!(cut.notes.iter().any(|note| note.contains("2 of 4 rows exceed 64 tokens")), "{:?}", cut.notes);
    let alone = Desk::new();
    let each = alone.tokenise_within(&alone.job(&rows[..1]), 64).unwrap().train.targets;
    assert_eq!(cut.train.targets, 4 * each, "a cut prompt takes nothing of an answer or its end token");

    spec.data.too_long = protocol::job::TooLong::Refuse;
    let problem = problem_of(desk.tokenise_within(&spec, 64));
    assert_eq!((problem.code, problem.place.row), (Code::RowTooLong, Some(3)));
    assert!(problem.what.contains("65 tokens") && problem.what.contains("64 tokens"), "{problem}");
}

#[test]
fn a_prompt_that_alone_exceeds_the_limit_is_cut_on_its_left_and_an_answer_never_gets_a_false_end() {
    let desk = Desk::new();
    let long = rows_of(&desk, &[200]).remove(0);
    let mut spec = desk.job(&[long, chat("q", &"7#".repeat(100))]);
    spec.data.too_long = protocol::job::TooLong::TruncatePrompt;
    let facts = desk.tokenise_within(&spec, 64).unwrap();
    assert_eq!((facts.train.samples, facts.train.longest), (1, 64));
    assert_eq!(facts.train.dropped["row_too_long"], 1, "an answer over the limit is left out whole");
}

#[test]
fn one_row_with_a_validation_share_is_trained_on_and_evaluation_is_off_with_a_note() {
    for seed in 1..=20 {
        let desk = Desk::new();
        let mut spec = desk.job(&[CHAT.to_owned()]);
        spec.data.evaluation = protocol::job::EvaluationData::Fraction(0.1);
        spec.run.seed = seed;
        let facts = desk.tokenise(&spec).unwrap();
        assert_eq!((facts.train.samples, facts.evaluation.samples), (1, 0), "seed {seed}");
        assert!(facts.notes.iter().any(|note| note.contains("evaluation is off")), "{:?}", facts.notes);
        assert_eq!(desk.tokenise(&spec).unwrap(), facts, "found again");
    }
}

#[test]
fn three_rows_with_more_validation_rows_than_there_are_still_train() {
    let desk = Desk::new();
    let mut spec = desk.job(&[chat("a", "b"), chat("c", "d"), chat("e", "f")]);
    spec.data.evaluation = protocol::job::EvaluationData::Fraction(0.999);
    let facts = desk.tokenise(&spec).unwrap();
    assert!(facts.train.samples >= 1, "{facts:?}");
    assert_eq!(facts.train.samples + facts.evaluation.samples, 3);
}

#[test]
fn a_padding_token_that_is_the_end_token_masks_no_end_of_an_answer() {
    let desk = Desk::new();
    let model = golden("models/llama");
    let whole = std::fs::read_to_string(model.join("tokenizer_config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let eos = config["eos_token"].clone();
    for pad in [eos, serde_json::Value::Null] {
        let folder = desk.folder.path().join("model");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        for file in std::fs::read_dir(&model).unwrap() {
            let file = file.unwrap();
            if file.file_name() != "special_tokens_map.json" {
                std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
            }
        }
        config["pad_token"] = pad;
        std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
        let rows =
            desk.file("rows.jsonl", &[chat("q", "short"), chat("q", "a much longer answer than that")].join("\n"));
        let mut spec = spec("sft", &format!("path = {folder:?}"), &rows);
        spec.data.packing = false;
        let facts = desk.tokenise(&spec).unwrap();
        let cache = formats::tokens::Cache::open(&facts.path).unwrap();
        for row in 1..=2 {
            let preview = desk.preview(&spec, row, 1000).unwrap();
            let ends = preview.tokens.iter().filter(|token| token.id == facts.eos && token.trained).count();
            assert_eq!(ends, 1, "row {row}");
        }
        assert_eq!(cache.facts().train.rows, 2);
        let targets: u64 = (1..=2)
            .map(|row| {
                desk.preview(&spec, row, 1000).unwrap().tokens.iter().filter(|token| token.trained).count() as u64
            })
            .sum();
        assert_eq!(facts.train.targets, targets, "padding is never a target");
    }
}

#[test]
fn a_preview_says_what_was_converted() {
    let desk = Desk::new();
    let mut spec = desk.job(&[CHAT.replace("\"q\"", "42")]);
    assert_eq!(desk.preview(&spec, 1, 100).unwrap().problems[0].code, Code::ValueNotText);
    spec.data.rows.insert("value_not_text".into(), RowAction::Convert);
    let preview = desk.preview(&spec, 1, 100).unwrap();
    assert!(preview.text.contains("42") && preview.tokens.len() > 2, "{preview:?}");
    assert_eq!(preview.problems[0].code, Code::ValueNotText);
}
