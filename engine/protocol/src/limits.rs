//! Bounds on everything that crosses a process or comes from a file, in one place, each with its reason.

/// Version of the messages between supervisor, trainer and engine; another one is refused with a sentence.
pub const PROTOCOL: u32 = 1;
/// Longest message line between processes, in bytes: a `Problem` with long names fits, a flood does not.
pub const MESSAGE_BYTES: usize = 64 * 1024;
/// Longest journal line, in bytes: the same bound, so that every message can be journaled.
pub const JOURNAL_LINE_BYTES: usize = MESSAGE_BYTES + 1024;
/// Longest job file, in bytes.
pub const JOB_BYTES: u64 = 1024 * 1024;
/// Longest record of a data set, in bytes.
pub const RECORD_BYTES: usize = 16 * 1024 * 1024;
/// Decoded bytes of a compressed table (Parquet, Arrow) that are read whatever its size on disk: a repeated text costs no
/// room there, and this much is read in seconds.
pub const DECODED_BYTES: u64 = 2 << 30;
/// Decoded bytes of a compressed table for each of its bytes on disk, beyond `DECODED_BYTES`: text compresses to a tenth.
pub const DECODED_RATIO: u64 = 200;
/// Largest page of a Parquet file or batch of an Arrow file, decoded, in bytes: it is in memory as a whole.
pub const BATCH_BYTES: u64 = 256 << 20;
/// Most entries of all lists of one column in one row group of a Parquet file: their positions, four bytes each, may be
/// in memory at once.
pub const LEVELS: u64 = 64 << 20;
/// Longest footer of a Parquet file and longest description of an Arrow batch, in bytes.
pub const TABLE_FOOTER_BYTES: u64 = 64 << 20;
/// Longest JSON file that holds its columns one after the other, in bytes: it is in memory as a whole, several times over.
pub const JSON_COLUMNS_BYTES: u64 = 128 << 20;
/// Deepest folder within a folder of data.
pub const FOLDER_DEPTH: usize = 8;
/// Entries looked at in a folder of data and all its folders.
pub const FOLDER_ENTRIES: usize = 100_000;
/// Deepest nesting of JSON from a file.
pub const JSON_DEPTH: usize = 128;
/// Longest header of a safetensors file, in bytes (the reference reader's own bound).
pub const SAFETENSORS_HEADER_BYTES: u64 = 100_000_000;
/// Longest part of a GGUF file before its tensors, in bytes: twice that of the largest published vocabularies (a quarter of
/// a million tokens and half a million merges).
pub const GGUF_HEADER_BYTES: u64 = 32 * 1024 * 1024;
/// Most metadata keys of a GGUF file: published files have some fifty.
pub const GGUF_KEYS: u64 = 16 * 1024;
/// Most tensors of a GGUF file: a thousand layers of forty.
pub const GGUF_TENSORS: u64 = 40 * 1024;
/// Longest tensor name of a GGUF file, in bytes: llama.cpp itself takes 63.
pub const GGUF_NAME_BYTES: u64 = 256;
/// Deepest nesting of arrays in GGUF metadata; published files have none.
pub const GGUF_DEPTH: usize = 4;
/// Most arrays within arrays in GGUF metadata: each takes more memory than it has bytes.
pub const GGUF_NESTED_ARRAYS: u64 = 16 * 1024;
/// Largest alignment of tensors in a GGUF file, in bytes: a memory page of the largest kind in use.
pub const GGUF_ALIGNMENT: u64 = 64 * 1024;
/// Most steps of finding the merges of a vocabulary with scores: all ways to cut all its tokens in two, by length. The
/// largest published vocabularies take a quarter.
pub const GGUF_MERGE_STEPS: u64 = 1 << 26;
/// Longest `config.json`, `tokenizer_config.json` or template, in bytes.
pub const CONFIG_BYTES: u64 = 16 * 1024 * 1024;
/// Longest `tokenizer.json`, in bytes.
pub const TOKENIZER_BYTES: u64 = 256 * 1024 * 1024;
/// Longest name of a job, in bytes.
pub const NAME_BYTES: usize = 200;
/// Row problems listed one by one in an inspection; all are counted.
pub const LISTED_ROW_PROBLEMS: usize = 100;
/// Characters of a row's own text in a report: enough to find it by, few enough for a line of a table.
pub const ROW_TEXT: usize = 200;
/// Different rows remembered to count repeated ones: 32 MiB of hashes; beyond it the count is a lower bound.
pub const ROWS_COMPARED: usize = 1 << 20;
/// Step events a trainer keeps until the supervisor has journaled them.
pub const UNACKNOWLEDGED_STEPS: usize = 4096;
/// Crashes in a row, without a new step, after which a job fails.
pub const RESTARTS: u32 = 3;
/// Most points of a curve: more than a screen has columns, and an answer of a megabyte at most.
pub const CURVE_POINTS: u32 = 4096;
/// Most rows of a page of the job list: what a screen shows, several times over.
pub const PAGE_ROWS: u32 = 1000;
/// Steps in a batch of a live run: at 20 batches a second more than an eye can follow.
pub const BATCH_STEPS: usize = 64;
/// Most lines of a log that are given at once.
pub const LOG_LINES: u32 = 10_000;
/// Most rows of a data set listed at once: a screen shows some thirty of them.
pub const LISTED_ROWS: u32 = 200;
/// Characters of a row's prompt or answer in a list: a line of a wide screen.
pub const LISTED_CHARS: usize = 240;
/// Bars of a length histogram.
pub const LENGTH_BINS: usize = 48;
/// Bytes of a data set read for its first facts: the rest is counted while they are already on show.
pub const FIRST_LOOK_BYTES: u64 = 32 * 1024 * 1024;
