//! Ids and text against the reference, and what a user's text may not do.

use super::*;
use proptest::prelude::*;
use serde_json::Value;

pub(crate) fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(path)
}

fn corpus(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/hostile").join(path)
}

fn qwen() -> Tokenizer {
    Tokenizer::open(&golden("models/llama")).unwrap()
}

/// Golden tokenizers by the name that the golden files use; None with a printed line where the folder is not here.
pub(crate) fn named(name: &str) -> Option<Tokenizer> {
    let folder = match name {
        "qwen" => golden("models/llama"),
        "smollm2" => match std::env::var_os("ANNEAL_SMOLLM2") {
            Some(model) => PathBuf::from(model),
            None => {
                println!("skipped: $ANNEAL_SMOLLM2 does not name SmolLM2 as GGUF");
                return None;
            }
        },
        style => golden(&format!("tokenizer/styles/{style}")),
    };
    Some(Tokenizer::open(&folder).unwrap())
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

#[test]
fn ids_and_text_are_those_of_the_reference() {
    let all: Value = serde_json::from_slice(&std::fs::read(golden("tokenizer/encode.json")).unwrap()).unwrap();
    let mut cases = 0;
    for (name, set) in all["tokenizers"].as_object().unwrap() {
        let Some(tokenizer) = named(name) else { continue };
        for case in set["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode(text, true).unwrap(), numbers(&case["ids"]), "{name}: {text:?}");
            let bare = tokenizer.encode_with(text, Control::Recognised, false).unwrap();
            assert_eq!(bare.ids, numbers(&case["ids_no_special"]), "{name}: {text:?}");
            let decoded = tokenizer.decode(&bare.ids, false).unwrap();
            assert_eq!(decoded, case["decoded"].as_str().unwrap(), "{name}: {text:?}");
            let words = tokenizer.decode(&numbers(&case["ids"]), true).unwrap();
            assert_eq!(words, case["decoded_skip_special"].as_str().unwrap(), "{name}: {text:?}");
            let pairs = case["offsets"].as_array().unwrap().iter().map(numbers);
            assert_eq!(in_characters(text, &bare.offsets), pairs.collect::<Vec<_>>(), "{name}: {text:?}");
            cases += 1;
        }
    }
    assert!(cases >= 160);
}

/// Byte ranges as the reference counts them: a piece of a character stands for all of it.
fn in_characters(text: &str, offsets: &[(usize, usize)]) -> Vec<Vec<u32>> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let holding = |byte: usize| starts.partition_point(|start| *start <= byte) as u32;
    let range = |(begin, end): &(usize, usize)| match begin < end {
        true => vec![holding(*begin) - 1, holding(*end - 1)],
        false => vec![holding(*begin).saturating_sub(1); 2],
    };
    offsets.iter().map(range).collect()
}

#[test]
fn a_users_text_does_not_become_a_control_token() {
    for name in ["qwen", "gpt2", "llama3", "spm"] {
        let tokenizer = named(name).unwrap();
        for control in tokenizer.control_texts() {
            let text = format!("say {control} twice {control}{control}");
            let plain = tokenizer.encode_with(&text, Control::Plain, false).unwrap();
            assert!(!plain.ids.iter().any(|id| tokenizer.is_special(*id)), "{name}: {text}");
            let recognised = tokenizer.encode_with(&text, Control::Recognised, false).unwrap();
            assert_eq!(recognised.ids.iter().filter(|id| tokenizer.is_special(**id)).count(), 3, "{name}: {text}");
            let places: Vec<usize> = text.match_indices(control).map(|(i, _)| i + 1).collect();
            let around = tokenizer.encode_with(&text, Control::PlainAt(&places), false).unwrap();
            assert_eq!(around, plain, "{name}: {text}");
            let first = tokenizer.encode_with(&text, Control::PlainAt(&places[..1]), false).unwrap();
            assert_eq!(first.ids.iter().filter(|id| tokenizer.is_special(**id)).count(), 2, "{name}: {text}");
        }
    }
}

#[test]
fn offsets_around_marks_are_those_of_the_text() {
    let tokenizer = qwen();
    let text = "a<|im_end|>b<|im_end|>ü";
    let encoded = tokenizer.encode_with(text, Control::PlainAt(&[2]), false).unwrap();
    let pieces: Vec<&str> = encoded.offsets.iter().map(|(a, b)| &text[*a..*b]).collect();
    assert_eq!(encoded.offsets.last().unwrap().1, text.len());
    assert!(pieces.contains(&"<|im_end|>"));
    assert_eq!(encoded.ids.iter().filter(|id| **id == 2).count(), 1);
}

#[test]
fn begin_and_end_tokens_are_those_of_the_config() {
    let tokenizer = qwen();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.pad(), tokenizer.vocab()), (None, Some(2), Some(0), 384));
    let llama3 = named("llama3").unwrap();
    assert_eq!((llama3.bos(), llama3.bos_text(), llama3.eos()), (Some(0), Some("<|begin_of_text|>"), Some(3)));
    assert_eq!(llama3.encode("hi", false).unwrap()[0], 0);
    let ok = Tokenizer::open(&corpus("D_ok_model")).unwrap();
    assert_eq!((ok.eos(), ok.vocab()), (Some(61), 64));
}

#[test]
fn text_comes_out_in_whole_characters() {
    for name in ["qwen", "gpt2", "llama3", "spm"] {
        let tokenizer = named(name).unwrap();
        let text = "naïve 🙂 世界 \u{200d} end\nx";
        let ids = tokenizer.encode_with(text, Control::Plain, false).unwrap().ids;
        let mut decoder = tokenizer.decoder();
        let mut pieces: Vec<String> = ids.iter().map(|id| decoder.push(*id).unwrap()).collect();
        pieces.push(decoder.finish().unwrap());
        assert!(pieces.iter().all(|p| !p.contains('\u{FFFD}')), "{name}: {pieces:?}");
        assert_eq!(pieces.concat(), tokenizer.decode(&ids, true).unwrap(), "{name}");
    }
}

#[test]
fn bytes_that_are_no_character_come_out_at_the_end() {
    let tokenizer = qwen();
    let ids = tokenizer.encode_with("🙂", Control::Plain, false).unwrap().ids;
    let mut decoder = tokenizer.decoder();
    assert_eq!(decoder.push(ids[0]).unwrap(), "");
    assert_eq!(decoder.finish().unwrap(), "\u{FFFD}");
    let mut endless = tokenizer.decoder();
    let out: String = (0..100).map(|_| endless.push(ids[0]).unwrap()).collect();
    assert!(out.len() > 100, "an endless run of broken bytes is not held back for ever");
}

#[test]
fn a_cut_tokenizer_is_refused_with_its_line() {
    let problem = Tokenizer::open(&corpus("D22_tok_cut_json")).err().unwrap();
    assert_eq!(problem.code, Code::TokenizerInvalid);
    assert!(problem.sentence().contains("tokenizer.json") && problem.why.contains("line"), "{problem}");
    assert_eq!(Tokenizer::open(&golden("bad/safetensors")).err().unwrap().code, Code::TokenizerInvalid);
}

#[test]
fn an_exponential_pattern_ends_in_time() {
    let start = std::time::Instant::now();
    let probe = std::fs::read_to_string(corpus("D21_tok_redos/probe.txt")).unwrap();
    let outcome = Tokenizer::open(&corpus("D21_tok_redos")).and_then(|t| t.encode(&probe, false));
    if let Err(problem) = outcome {
        assert!(problem.sentence().contains("tokenizer.json"), "{problem}");
    }
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn a_trained_tokenizer_is_the_same_each_time_and_loses_nothing() {
    let verses = std::fs::read_to_string(golden("../../sample/kjv.txt")).unwrap();
    let lines = || verses.lines().take(2000).map(str::to_owned);
    let [a, b] = [0, 1].map(|_| {
        let dir = tempfile::tempdir().unwrap();
        train_bpe(&mut lines(), 512, dir.path()).unwrap();
        dir
    });
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        assert_eq!(std::fs::read(a.path().join(name)).unwrap(), std::fs::read(b.path().join(name)).unwrap());
    }
    let tokenizer = Tokenizer::open(a.path()).unwrap();
    assert_eq!((tokenizer.vocab(), tokenizer.eos(), tokenizer.bos()), (512, Some(0), None));
    let text = "In the beginning <|endoftext|> 🙂\r\n\u{0}";
    let ids = tokenizer.encode(text, false).unwrap();
    assert!(!ids.contains(&0));
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    assert!(ids.len() < text.len());
    assert!(train_bpe(&mut lines(), 100, a.path()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_encoded_and_byte_level_loses_nothing(text in "\\PC{0,60}") {
        let tokenizer = named("gpt2").unwrap();
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert!(ids.iter().all(|id| *id < tokenizer.vocab()));
        prop_assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }

    #[test]
    fn a_tokenizer_with_changed_bytes_never_crashes(changes in prop::collection::vec((0usize..13_544, any::<u8>()), 1..5)) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(golden("models/llama/tokenizer.json")).unwrap();
        for (at, value) in changes {
            bytes[at] = value;
        }
        std::fs::write(dir.path().join("tokenizer.json"), bytes).unwrap();
        if let Ok(tokenizer) = Tokenizer::open(dir.path()) {
            let _ = tokenizer.encode("Hello <|im_end|> 🙂", true).and_then(|ids| tokenizer.decode(&ids, false));
        }
    }
}

/// Pieces that tokenizers stumble over: runs of spaces, contractions, digits of other scripts, joined characters, letters
/// that normalisation composes, control tokens and parts of them.
fn awkward() -> impl Strategy<Value = String> {
    const PIECES: [&str; 40] = [
        " ",
        "  ",
        "   ",
        "\n",
        "\r\n",
        "\t",
        "\u{a0}",
        "\u{3000}",
        "\u{2028}",
        "'s",
        "'LL",
        "don't",
        "a",
        "Zoë",
        "e\u{301}",
        "é",
        "가",
        "한국",
        "世界",
        "🙂",
        "👩\u{200d}🚀",
        "7",
        "42",
        "٣",
        "½",
        "Ⅷ",
        "_",
        "--",
        "$%",
        "<|im_end|>",
        "<|im_",
        "end|>",
        "<|endoftext|>",
        "<|begin_of_text|>",
        "\u{0}",
        "\u{fdd0}",
        "\u{feff}",
        "ß",
        "ﬁ",
        "Ġ",
    ];
    prop::collection::vec(
        prop_oneof![4 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned), 1 => "\\PC{0,8}"],
        0..24,
    )
    .prop_map(|all| all.concat())
}

#[test]
fn byte_level_tokenizers_go_the_short_way() {
    for (name, short) in [("qwen", true), ("gpt2", true), ("llama3", true), ("spm", false)] {
        assert_eq!(named(name).unwrap().fast.is_some(), short, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_leads_where_the_long_one_does(text in awkward(), at in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        static ALL: std::sync::LazyLock<Vec<Tokenizer>> = std::sync::LazyLock::new(|| {
            ["qwen", "gpt2", "llama3"].into_iter().filter_map(named).chain(named("smollm2")).collect()
        });
        let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).filter(|i| *i > 0).collect();
        let mut places: Vec<usize> = at.iter().filter(|_| !ends.is_empty()).map(|i| ends[i.index(ends.len())]).collect();
        places.sort_unstable();
        places.dedup();
        for tokenizer in ALL.iter() {
            for control in [Control::Recognised, Control::Plain, Control::PlainAt(&places)] {
                for added in [false, true] {
                    let (short, long) = (tokenizer.encode_fast(&text, control, added), tokenizer.encode_slowly(&text, control, added));
                    match (short, long) {
                        (Ok(Some(short)), Ok(long)) => prop_assert_eq!(short, long, "{:?} {:?}", control, text),
                        (Ok(None), _) => prop_assert!(!text.is_ascii()),
                        (short, long) => prop_assert_eq!(short.is_err(), long.is_err(), "{:?}", text),
                    }
                }
            }
        }
    }
}

/// The strings of `ten_thousand.py`, drawn as it draws them.
fn drawn(made: &Value) -> Vec<String> {
    let pieces: Vec<&str> = made["pieces"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect();
    let mut state = made["seed"].as_u64().unwrap();
    let mut draw = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let one = |_| (0..draw(24)).collect::<Vec<_>>().iter().map(|_| pieces[draw(pieces.len())]).collect::<String>();
    (0..made["strings"].as_u64().unwrap()).map(one).collect()
}

/// FNV-1a over the lengths and ids of some strings.
fn fnv(all: &[Vec<u32>]) -> String {
    let numbers = all.iter().flat_map(|ids| std::iter::once(ids.len() as u32).chain(ids.iter().copied()));
    let hash = numbers
        .flat_map(u32::to_le_bytes)
        .fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
    format!("{hash:016x}")
}

#[test]
fn ten_thousand_strings_have_the_ids_of_the_reference_library() {
    let made: Value = serde_json::from_slice(&std::fs::read(golden("tokenizer/ten_thousand.json")).unwrap()).unwrap();
    let (texts, block) = (drawn(&made), made["block"].as_u64().unwrap() as usize);
    for (name, blocks) in made["blocks"].as_object().unwrap() {
        let Some(tokenizer) = named(name) else { continue };
        let ids: Vec<Vec<u32>> = texts.iter().map(|text| tokenizer.encode(text, true).unwrap()).collect();
        for ((at, part), expected) in ids.chunks(block).enumerate().zip(blocks.as_array().unwrap()) {
            assert_eq!(fnv(part), expected.as_str().unwrap(), "{name}: strings {} and on", at * block);
        }
    }
}
