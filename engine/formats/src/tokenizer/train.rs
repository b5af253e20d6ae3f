//! Training a small byte-level BPE, for models from scratch.

use super::guarded;
use crate::model_folder::{pretty, put};
use protocol::{Code, Outcome, Problem};
use serde_json::json;
use std::path::Path;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, ModelWrapper, Tokenizer};

/// Text looked at: merges of the first 64 MiB are those of the whole.
const TEXT_BYTES: usize = 64 << 20;
/// The one control token: ends a text.
const END: &str = "<|endoftext|>";
/// All bytes and the control token.
const FEWEST: u32 = 257;
/// More would not be a small tokenizer.
const MOST: u32 = 1 << 18;

/// Trains a byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2) of at most `entries` on `texts` and writes
/// `tokenizer.json` and `tokenizer_config.json` into `folder`. The same texts give the same files. Its one special token
/// is `<|endoftext|>`, id 0.
pub fn train_bpe(texts: &mut (dyn Iterator<Item = String> + Send), entries: u32, folder: &Path) -> Outcome<()> {
    if !(FEWEST..=MOST).contains(&entries) {
        let what = format!("a tokenizer of {entries} entries was asked for; {FEWEST} to {MOST} are possible");
        return Err(Problem::new(Code::SettingInvalid, what));
    }
    let path = folder.join("tokenizer.json");
    let json = guarded("training", &path, || train(texts, entries)?.to_string(true))?;
    put(&path, json.as_bytes())?;
    let config = json!({
        "added_tokens_decoder": {"0": {
            "content": END, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true,
        }},
        "clean_up_tokenization_spaces": false,
        "eos_token": END,
        "model_input_names": ["input_ids", "attention_mask"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    });
    put(&folder.join("tokenizer_config.json"), pretty(&config).as_bytes())
}

fn train(texts: &mut (dyn Iterator<Item = String> + Send), entries: u32) -> tokenizers::Result<Tokenizer> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    tokenizer.with_post_processor(Some(ByteLevel::default().trim_offsets(false)));
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(entries as usize)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from(END, true)])
        .build();
    let mut left = TEXT_BYTES;
    let texts = texts.map_while(|text| {
        left = left.checked_sub(text.len())?;
        Some(text)
    });
    tokenizer.train(&mut tokenizers::models::TrainerWrapper::from(trainer), texts)?;
    debug_assert!(matches!(tokenizer.get_model(), ModelWrapper::BPE(_)));
    Ok(tokenizer)
}
