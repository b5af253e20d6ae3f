//! Models that are already on this machine, and what becomes of one that is taken.

use serde::{Deserialize, Serialize};

/// What was found, and where was looked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Shelf {
    /// Models by name.
    pub models: Vec<ShelfModel>,
    /// Places that were looked at.
    pub places: Vec<ShelfPlace>,
}

/// A model that lies on this machine; what it is in full is told by looking at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ShelfModel {
    /// Name as its place gives it: "HuggingFaceTB/SmolLM2-135M", "llama3.2:1b".
    pub name: String,
    /// The folder or GGUF file, used where it lies.
    pub path: String,
    /// Whose place it lies in.
    pub source: ShelfSource,
    /// Bytes of weights.
    pub bytes: u64,
    /// "safetensors", "gguf".
    pub format: String,
}

/// Whose place it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ShelfSource {
    /// The cache of Hugging Face's libraries.
    HuggingFace,
    /// LM Studio.
    LmStudio,
    /// Ollama.
    Ollama,
    /// A place the user added.
    Added,
}

/// A place that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ShelfPlace {
    /// Folder.
    pub path: String,
    /// Whose.
    pub source: ShelfSource,
    /// It is there.
    pub there: bool,
    /// Models found in it.
    pub models: u64,
}

/// How a model gets to another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Copies of the files.
    Copy,
    /// The same bytes under a second name; only on the same disk.
    Link,
    /// The files leave their old place.
    Move,
}

/// What taking a model did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Taken {
    /// The new folder or file.
    pub to: String,
    /// How.
    pub how: How,
    /// Each file, from and to.
    pub files: Vec<(String, String)>,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes free where they go.
    pub free: u64,
    /// Nothing was done: this is what would be.
    pub dry_run: bool,
}
