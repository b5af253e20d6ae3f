//! The payload of each command. Unknown fields are refused everywhere; `ask` bounds the whole.

use protocol::JobSpec;
use protocol::job::DataSpec;
use protocol::shelf::How;
use protocol::view::{Browse, CurveQuery, ExportFormat, GenerateQuery, JobQuery, JobWord};
use serde::Deserialize;
use std::path::PathBuf;
use tauri::ipc::JavaScriptChannelId;

/// A structure of the page's words.
macro_rules! asked {
    ($($(#[$about:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$about])*
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            #[allow(missing_docs)]
            pub struct $name { $(pub $field: $kind),* }
        )*
    };
}

asked! {
    /// No words.
    Nothing {}
    /// `browse`.
    Browsed { what: Browse }
    /// A job.
    Job { id: String }
    /// `set_title`.
    Title { title: String }
    /// `notify`.
    Notice { title: String, body: String, id: String }
    /// An open call.
    Token { token: u32 }
    /// `inspect`.
    Paths { paths: Vec<PathBuf> }
    /// `inspect_data`.
    Reading { path: PathBuf, data: DataSpec, on_line: JavaScriptChannelId }
    /// `preview`.
    Record { spec: JobSpec, row: u64 }
    /// `rows`.
    Rows { spec: JobSpec, from: u64, count: u32 }
    /// `find_row`.
    Wanted { spec: JobSpec, text: String, from: u64 }
    /// `plan`.
    Planning { spec: JobSpec, on_line: JavaScriptChannelId }
    /// `submit`.
    Submission { spec: JobSpec }
    /// `request`.
    Word { id: String, word: JobWord }
    /// `jobs`.
    Page { query: JobQuery }
    /// `curve`.
    CurvePart { id: String, query: CurveQuery }
    /// `follow`.
    Following { id: String, token: u32, on_batch: JavaScriptChannelId }
    /// `log`.
    Log { id: String, lines: u32 }
    /// `compare`.
    Pair { a: String, b: String }
    /// `checkpoints`.
    Kept { id: String, verify: bool }
    /// `fork`.
    Fork { id: String, step: u64, changes: Vec<String> }
    /// `export_files`.
    Exporting { from: PathBuf, format: ExportFormat }
    /// `add_place`, `remove_place`.
    Location { path: PathBuf }
    /// `take_model`.
    Taking { path: PathBuf, to: PathBuf, how: How, dry_run: bool }
    /// `generate`.
    Generating { query: GenerateQuery, token: u32, on_text: JavaScriptChannelId }
}
