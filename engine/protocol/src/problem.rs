//! What every refusal and failure carries. Screens and exit codes decide on `code`, never on a sentence.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Either a value, or the one `Problem` that stopped it.
pub type Outcome<T> = Result<T, Problem>;

/// The kind of a problem. One name a kind; texts for people are made where the problem is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    // the request
    /// The command line cannot be understood; the exit status is 2.
    Usage,
    /// The job file is not TOML, or a key is unknown or has the wrong type.
    JobInvalid,
    /// A value is outside what the product can do.
    SettingInvalid,
    /// The feature is known and not part of this version.
    NotSupported,
    /// No such job, step, file or device.
    NotFound,
    /// The job's state does not allow this.
    WrongState,
    // files
    /// The path does not exist or cannot be read.
    FileUnreadable,
    /// The file is empty.
    FileEmpty,
    /// The file is cut short.
    FileTruncated,
    /// The file does not follow its format.
    FileMalformed,
    /// The file's format is not one the product reads.
    FormatUnknown,
    /// The file holds code that would have to run to be read (pickle).
    CodeInFile,
    /// A path leads outside what was given.
    PathOutside,
    /// Something is larger than its bound.
    TooLarge,
    // models
    /// `config.json` is missing a field or contradicts itself.
    ConfigInvalid,
    /// The model's architecture is not one the product trains.
    ArchitectureUnknown,
    /// A tensor is missing, extra or has the wrong shape or type.
    TensorMismatch,
    /// `tokenizer.json` is missing or cannot be read.
    TokenizerInvalid,
    /// The chat template is missing or cannot be rendered.
    TemplateInvalid,
    // data
    /// The rows have a layout the product does not know.
    LayoutUnknown,
    /// The data set's layout cannot serve this stage.
    LayoutUnfit,
    /// No row can be used.
    NoUsableRows,
    /// A row cannot be used.
    RowInvalid,
    /// A row has an empty answer.
    EmptyAnswer,
    /// A row is not valid JSON.
    RowNotJson,
    /// A row is not UTF-8.
    RowNotUtf8,
    /// The file is not UTF-8, and nobody has said which encoding it is in.
    EncodingUnconfirmed,
    /// A row is longer than the length limit.
    RowTooLong,
    /// A row is no object with named columns.
    RowNotObject,
    /// A row lacks a column that its layout needs.
    MissingColumn,
    /// A value that is to be text is a number, true or false, or an object.
    ValueNotText,
    /// A column holds another kind of value than its layout needs: no list of messages, no JSON, an unknown part.
    WrongShape,
    /// A message is of somebody that is not known.
    UnknownRole,
    /// A row has another number of fields than the heading.
    FieldsDiffer,
    /// A quote is opened and never closed.
    QuoteOpen,
    /// A row holds images, sound or video.
    MediaContent,
    /// Nothing in a row is to be learnt: no assistant says anything.
    NoAnswer,
    /// A conversation ends without an answer to its last question.
    UnansweredTurn,
    /// The training data changed since the job was planned.
    DataChanged,
    /// The base model changed since the job was planned.
    ModelChanged,
    // machine
    /// The job does not fit into memory.
    OutOfMemory,
    /// The disk has too little room.
    DiskFull,
    /// A disk operation failed.
    DiskFailed,
    /// A device is missing or does not answer.
    DeviceUnavailable,
    /// A device was lost while it computed.
    DeviceLost,
    /// A device gave a wrong answer or stopped with an error of its own while it computed.
    DeviceFault,
    /// HOME lies where locks and logs do not work.
    HomeUnsuitable,
    // runs
    /// Loss or gradient is not finite.
    NotFinite,
    /// A checkpoint is damaged.
    CheckpointDamaged,
    /// No checkpoint can be restored.
    CheckpointMissing,
    /// The trainer ended without being told to.
    TrainerDied,
    /// The trainer stopped answering.
    TrainerHung,
    /// The supervisor is gone.
    SupervisorLost,
    /// The job is being run by another process.
    Busy,
    /// The history file was damaged and rebuilt.
    HistoryRebuilt,
    /// The history file was written by a newer version.
    HistoryNewer,
    /// The history file cannot be read or written.
    HistoryFailed,
    /// The user ended it before it was done.
    Cancelled,
    /// The other side speaks another protocol version.
    ProtocolMismatch,
    /// Something the product did not foresee: a defect of ours.
    Internal,
}

impl Code {
    /// The snake-case name that `--json` prints.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// Where a problem was found. All parts optional: only what is known is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default)]
pub struct Place {
    /// The file, as the user named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub file: Option<String>,
    /// Line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub line: Option<u64>,
    /// Row (record), from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub row: Option<u64>,
    /// Tensor name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub tensor: Option<String>,
    /// Key of a job or configuration file, dotted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub field: Option<String>,
}

impl Place {
    /// True when nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Place::default()
    }
}

/// A want of room, both sides of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Room {
    /// Bytes needed.
    pub needs: u64,
    /// Bytes there are.
    pub has: u64,
}

/// A way out that was checked: settings of the job file, dotted, and the values that they take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Way {
    /// Key and value, as `--set` takes them.
    pub set: BTreeMap<String, String>,
}

impl Way {
    /// The way of one setting.
    pub fn set(key: &str, value: impl ToString) -> Way {
        Way::default().and(key, value)
    }

    /// Adds a setting.
    pub fn and(mut self, key: &str, value: impl ToString) -> Way {
        self.set.insert(key.to_owned(), value.to_string());
        self
    }
}

/// One problem: what happened, why, what was kept, what to do, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[error("{}", self.sentence())]
pub struct Problem {
    /// The kind; the only part that code decides on.
    pub code: Code,
    /// What happened, with both sides of a contradiction.
    pub what: String,
    /// Why; empty when `what` says it all.
    #[serde(default)]
    pub why: String,
    /// What was kept; empty when nothing was at risk.
    #[serde(default)]
    pub kept: String,
    /// What to do.
    #[serde(default)]
    pub remedy: String,
    /// Where.
    #[serde(default)]
    pub place: Place,
    /// The numbers of a want of room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub room: Option<Room>,
    /// Ways out that were checked, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
}

impl Problem {
    /// A problem of this kind; say the rest with the methods below.
    pub fn new(code: Code, what: impl Into<String>) -> Problem {
        Problem {
            code,
            what: what.into(),
            why: String::new(),
            kept: String::new(),
            remedy: String::new(),
            place: Place::default(),
            room: None,
            ways: Vec::new(),
        }
    }

    /// A failed read or write, with the file and the system's reason.
    pub fn io(error: &std::io::Error, doing: &str, file: &Path) -> Problem {
        let code = match error.raw_os_error() {
            Some(28 | 122) => Code::DiskFull,
            _ if error.kind() == std::io::ErrorKind::NotFound => Code::FileUnreadable,
            _ if error.kind() == std::io::ErrorKind::PermissionDenied => Code::FileUnreadable,
            _ => Code::DiskFailed,
        };
        let remedy = match code {
            Code::DiskFull => "free some room on this disk and try again",
            Code::FileUnreadable => "check that the path exists and may be read",
            _ => "check the disk (dmesg tells more) and try again",
        };
        Problem::new(code, format!("{doing} failed")).why(error.to_string()).file(file).remedy(remedy)
    }

    /// A defect of ours.
    pub fn internal(what: impl Into<String>) -> Problem {
        Problem::new(Code::Internal, what)
            .remedy("this is a defect in Anneal; the run folder's trainer.log has the details")
    }

    /// Adds why it happened.
    pub fn why(mut self, why: impl Into<String>) -> Problem {
        self.why = why.into();
        self
    }

    /// Adds what was kept.
    pub fn kept(mut self, kept: impl Into<String>) -> Problem {
        self.kept = kept.into();
        self
    }

    /// Adds what to do.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Problem {
        self.remedy = remedy.into();
        self
    }

    /// Adds both sides of a want of room, in bytes.
    pub fn room(mut self, needs: u64, has: u64) -> Problem {
        self.room = Some(Room { needs, has });
        self
    }

    /// Adds a way out.
    pub fn way(mut self, way: Way) -> Problem {
        self.ways.push(way);
        self
    }

    /// Adds the file.
    pub fn file(mut self, file: &Path) -> Problem {
        self.place.file = Some(file.display().to_string());
        self
    }

    /// Adds the line, from 1; 0 says nothing (a table without lines).
    pub fn line(mut self, line: u64) -> Problem {
        self.place.line = (line > 0).then_some(line);
        self
    }

    /// Adds the row, from 1.
    pub fn row(mut self, row: u64) -> Problem {
        self.place.row = Some(row);
        self
    }

    /// Adds the tensor.
    pub fn tensor(mut self, tensor: impl Into<String>) -> Problem {
        self.place.tensor = Some(tensor.into());
        self
    }

    /// Adds the key.
    pub fn field(mut self, field: impl Into<String>) -> Problem {
        self.place.field = Some(field.into());
        self
    }

    /// All parts in one line, for logs and terminals.
    pub fn sentence(&self) -> String {
        let mut text = self.what.clone();
        let p = &self.place;
        let place: Vec<String> = [
            p.file.clone(),
            p.line.map(|n| format!("line {n}")),
            p.row.map(|n| format!("row {n}")),
            p.tensor.as_ref().map(|t| format!("tensor {t}")),
            p.field.as_ref().map(|f| format!("field {f}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !place.is_empty() {
            text.push_str(&format!(" [{}]", place.join(", ")));
        }
        for (lead, part) in [(": ", &self.why), ("; kept: ", &self.kept), ("; ", &self.remedy)] {
            if !part.is_empty() {
                text.push_str(lead);
                text.push_str(part);
            }
        }
        text
    }
}
