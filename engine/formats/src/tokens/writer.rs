//! Writing a cache: samples go to two spool files as they come; at the end they are laid out row by row.

use super::pack::{self, Rows};
use super::{Cache, FILES, FileFacts, Header, NOTES, Set, VERSION};
use crate::model_folder::{pretty, put};
use crate::sample::Sample;
use protocol::facts::{SetFacts, TokenFacts};
use protocol::look::Survey;
use protocol::{Code, Outcome, Problem};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Samples of one set: their lengths are kept in memory, four bytes each and some twenty while packing.
const SAMPLES: usize = 1 << 28;
/// Bytes buffered before each write.
const BUFFER: usize = 1 << 20;
/// Tries to make a temporary folder while others clear theirs away.
const TRIES: u32 = 1000;

/// What is known of a cache before its first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheHead {
    /// Hash over data, tokenizer, template and every setting that shapes tokens; also the folder's name.
    pub fingerprint: String,
    /// Hash of the data files.
    pub data_fingerprint: String,
    /// Hash of tokenizer and template.
    pub tokenizer_fingerprint: String,
    /// Entries of the tokenizer: every id lies below.
    pub vocab: u32,
    /// Id that ends a text or an answer.
    pub eos: u32,
    /// Longest row in tokens.
    pub max_length: u32,
    /// Several samples in one row.
    pub packing: bool,
}

/// Writes a cache: samples stream to disk, the folder appears under its name when it is complete. A writer that is
/// dropped before `finish` leaves nothing.
pub struct CacheWriter {
    head: CacheHead,
    parent: PathBuf,
    temporary: Temporary,
    sets: [Spool; 2],
    notes: Vec<String>,
    survey: Survey,
}

impl CacheWriter {
    /// Starts a cache below `parent` (made if missing) in a temporary folder; what crashed writers left is cleared.
    pub fn create(parent: &Path, head: CacheHead) -> Outcome<CacheWriter> {
        let hex = head.fingerprint.bytes().all(|b| b.is_ascii_alphanumeric());
        if !hex || head.fingerprint.is_empty() || head.max_length == 0 || head.vocab == 0 {
            return Err(Problem::internal("a token cache needs a plain fingerprint, a length and a vocabulary"));
        }
        fs::create_dir_all(parent).map_err(|e| Problem::io(&e, "making the folder of token caches", parent))?;
        let temporary = Temporary::create(parent, &head.fingerprint)?;
        for name in ["tokenizer", Set::Train.folder(), Set::Evaluation.folder()] {
            let path = temporary.path.join(name);
            fs::create_dir(&path).map_err(|e| Problem::io(&e, "making a folder", &path))?;
        }
        let sets = [Spool::create(&temporary.path, Set::Train)?, Spool::create(&temporary.path, Set::Evaluation)?];
        Ok(CacheWriter {
            head,
            parent: parent.to_owned(),
            temporary,
            sets,
            notes: Vec::new(),
            survey: Survey::default(),
        })
    }

    /// Folder inside the cache that keeps the tokenizer files; copy or train them into it before `finish`.
    pub fn tokenizer_folder(&self) -> PathBuf {
        self.temporary.path.join("tokenizer")
    }

    /// Adds a sample of 1 to `max_length` tokens, all ids below `vocab`. Its first token is never a target.
    pub fn push(&mut self, set: Set, sample: &Sample) -> Outcome<()> {
        let n = sample.ids.len();
        if n == 0 || n > self.head.max_length as usize || sample.trained.len() != n {
            let what = format!("a sample of {n} tokens and {} marks was to be cached", sample.trained.len());
            return Err(Problem::internal(what));
        }
        if let Some(id) = sample.ids.iter().find(|id| **id >= self.head.vocab) {
            let what = format!("the tokenizer gave id {id}, but the model has {} entries", self.head.vocab);
            return Err(
                Problem::new(Code::TokenizerInvalid, what).remedy("use the tokenizer that belongs to the model")
            );
        }
        self.sets[set as usize].push(sample)
    }

    /// Counts a record that was left out.
    pub fn count_dropped(&mut self, set: Set, code: Code) {
        *self.sets[set as usize].facts.dropped.entry(code.name()).or_default() += 1;
    }

    /// What has been counted so far.
    pub fn counted(&self, set: Set) -> &SetFacts {
        &self.sets[set as usize].facts
    }

    /// Adds a note for people.
    pub fn note(&mut self, text: impl Into<String>) {
        if self.notes.len() < NOTES {
            self.notes.push(text.into());
        }
    }

    /// Says what is known of the records' lengths.
    pub fn surveyed(&mut self, survey: Survey) {
        self.survey = survey;
    }

    /// Packs the rows, makes everything durable and gives the folder its name. Where another writer of the same
    /// fingerprint was faster, its folder is kept. Errors: `NoUsableRows`, `DiskFull`, a failed write.
    pub fn finish(mut self) -> Outcome<TokenFacts> {
        if self.sets[0].lengths.is_empty() {
            return Err(no_rows(&self.sets[0].facts));
        }
        let mut files = BTreeMap::new();
        for set in Set::ALL {
            let rows = self.sets[set as usize].rows(&self.head);
            self.sets[set as usize].lay_out(&self.temporary.path, set, &rows, &mut files)?;
        }
        let facts = self.facts();
        let header = Header { version: VERSION, facts, files };
        let value = serde_json::to_value(&header).map_err(|e| Problem::internal(e.to_string()))?;
        put(&self.temporary.path.join("header.json"), pretty(&value).as_bytes())?;
        for folder in ["tokenizer", "train", "evaluation", "."] {
            synchronise(&self.temporary.path.join(folder))?;
        }
        self.publish()
    }

    fn facts(&mut self) -> TokenFacts {
        let head = self.head.clone();
        let [train, evaluation] = &mut self.sets;
        TokenFacts {
            path: PathBuf::new(),
            fingerprint: head.fingerprint,
            data_fingerprint: head.data_fingerprint,
            tokenizer_fingerprint: head.tokenizer_fingerprint,
            tokenizer: PathBuf::from("tokenizer"),
            vocab: head.vocab,
            eos: head.eos,
            max_length: head.max_length,
            train: std::mem::take(&mut train.facts),
            evaluation: std::mem::take(&mut evaluation.facts),
            notes: std::mem::take(&mut self.notes),
            survey: std::mem::take(&mut self.survey),
        }
    }

    fn publish(self) -> Outcome<TokenFacts> {
        let name = Cache::folder(&self.parent, &self.head.fingerprint);
        if fs::rename(&self.temporary.path, &name).is_err() {
            // A folder is there already. A good one is as good as ours; a damaged one makes room.
            if let Ok(cache) = Cache::open(&name) {
                return Ok(cache.facts().clone());
            }
            let aside = self.temporary.path.with_extension("damaged");
            fs::rename(&name, &aside).map_err(|e| Problem::io(&e, "moving a damaged token cache aside", &name))?;
            let renamed = fs::rename(&self.temporary.path, &name);
            let _ = fs::remove_dir_all(&aside);
            renamed.map_err(|e| Problem::io(&e, "naming the token cache", &name))?;
        }
        synchronise(&self.parent)?;
        Ok(Cache::open(&name)?.facts().clone())
    }
}

fn no_rows(facts: &SetFacts) -> Problem {
    let reasons: Vec<String> = facts.dropped.iter().map(|(code, n)| format!("{n} {code}")).collect();
    Problem::new(Code::NoUsableRows, "no row of the training data can be used")
        .why(reasons.join(", "))
        .remedy("look at the data set's problems, or raise data.max_length where rows are too long")
}

fn synchronise(folder: &Path) -> Outcome<()> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Problem::io(&e, "synchronising the folder", folder))
}

/// A folder `.FINGERPRINT.N.partial`, locked while its writer lives and removed when it ends without a result.
struct Temporary {
    path: PathBuf,
    _lock: File,
}

impl Temporary {
    fn create(parent: &Path, fingerprint: &str) -> Outcome<Temporary> {
        let failed = |e: &std::io::Error, path: &Path| Problem::io(e, "making a temporary folder", path);
        for n in 0..TRIES {
            let path = parent.join(format!(".{fingerprint}.{n}.partial"));
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    clear_if_dead(&path);
                    continue;
                }
                Err(e) => return Err(failed(&e, &path)),
            }
            let Ok(lock) = File::open(&path) else { continue };
            let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            if locked && is_at(&lock, &path) {
                return Ok(Temporary { path, _lock: lock });
            }
        }
        Err(Problem::new(Code::Busy, "too many unfinished token caches lie here").file(parent))
    }
}

/// Removes what a dead writer left: its lock can be taken.
fn clear_if_dead(path: &Path) {
    let Ok(lock) = File::open(path) else { return };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&lock, path) {
        let _ = fs::remove_dir_all(path);
    }
}

/// True when the open folder is still the one under this name.
fn is_at(open: &File, path: &Path) -> bool {
    match (open.metadata(), fs::symlink_metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if is_at(&self._lock, &self.path) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Samples of one set in the order they came.
struct Spool {
    ids: BufWriter<File>,
    trained: BufWriter<File>,
    paths: [PathBuf; 2],
    lengths: Vec<u32>,
    facts: SetFacts,
}

impl Spool {
    fn create(folder: &Path, set: Set) -> Outcome<Spool> {
        let paths = ["ids", "trained"].map(|n| folder.join(format!("{}.{n}.spool", set.folder())));
        let open = |path: &PathBuf| {
            let file = File::options().read(true).write(true).create_new(true).open(path);
            file.map(|f| BufWriter::with_capacity(BUFFER, f)).map_err(|e| Problem::io(&e, "making a file", path))
        };
        let (ids, trained) = (open(&paths[0])?, open(&paths[1])?);
        Ok(Spool { ids, trained, paths, lengths: Vec::new(), facts: SetFacts::default() })
    }

    fn push(&mut self, sample: &Sample) -> Outcome<()> {
        if self.lengths.len() == SAMPLES {
            let what = format!("the data set has more than {SAMPLES} samples");
            return Err(Problem::new(Code::TooLarge, what).remedy("split it into several jobs"));
        }
        let targets = sample.trained.iter().skip(1).filter(|t| **t != 0).count() as u64;
        let mut write = || -> std::io::Result<()> {
            for id in &sample.ids {
                self.ids.write_all(&id.to_le_bytes())?;
            }
            for (i, trained) in sample.trained.iter().enumerate() {
                self.trained.write_all(&[u8::from(i > 0 && *trained != 0)])?;
            }
            Ok(())
        };
        write().map_err(|e| Problem::io(&e, "writing tokens", &self.paths[0]))?;
        self.lengths.push(sample.ids.len() as u32);
        self.facts.samples += 1;
        self.facts.tokens += sample.ids.len() as u64;
        self.facts.targets += targets;
        Ok(())
    }

    fn rows(&self, head: &CacheHead) -> Rows {
        if head.packing { pack::together(&self.lengths, head.max_length) } else { pack::apart(self.lengths.len()) }
    }

    /// Writes the set's four files in the order of its rows and removes the spools.
    fn lay_out(
        &mut self,
        folder: &Path,
        set: Set,
        rows: &Rows,
        files: &mut BTreeMap<String, FileFacts>,
    ) -> Outcome<()> {
        for (spool, path) in [(&mut self.ids, &self.paths[0]), (&mut self.trained, &self.paths[1])] {
            spool.flush().map_err(|e| Problem::io(&e, "writing tokens", path))?;
        }
        let mut done = |name: &str, out: HashedFile| -> Outcome<()> {
            files.insert(format!("{}/{name}", set.folder()), out.finish()?);
            Ok(())
        };
        let path = |name: &str| folder.join(set.folder()).join(name);
        done(FILES[0], self.gather(self.ids.get_ref(), 4, rows, &path(FILES[0]))?)?;
        done(FILES[1], self.gather(self.trained.get_ref(), 1, rows, &path(FILES[1]))?)?;
        let mut segments = HashedFile::create(&path(FILES[2]))?;
        for i in &rows.order {
            segments.put(&self.lengths[*i as usize].to_le_bytes())?;
        }
        done(FILES[2], segments)?;
        done(FILES[3], self.row_table(rows, &path(FILES[3]))?)?;
        for path in &self.paths {
            fs::remove_file(path).map_err(|e| Problem::io(&e, "removing a temporary file", path))?;
        }
        Ok(())
    }

    /// Copies samples from a spool in the order of the rows; `width` bytes a token.
    fn gather(&self, spool: &File, width: u64, rows: &Rows, path: &Path) -> Outcome<HashedFile> {
        let mut starts = Vec::with_capacity(self.lengths.len());
        let mut at = 0u64;
        for length in &self.lengths {
            starts.push(at);
            at += u64::from(*length) * width;
        }
        let mut out = HashedFile::create(path)?;
        let mut bytes = Vec::new();
        for i in &rows.order {
            bytes.resize(self.lengths[*i as usize] as usize * width as usize, 0);
            spool
                .read_exact_at(&mut bytes, starts[*i as usize])
                .map_err(|e| Problem::io(&e, "reading tokens", path))?;
            out.put(&bytes)?;
        }
        Ok(out)
    }

    fn row_table(&mut self, rows: &Rows, path: &Path) -> Outcome<HashedFile> {
        let mut out = HashedFile::create(path)?;
        let (mut token, mut segment) = (0u64, 0usize);
        for n in &rows.samples {
            let samples = &rows.order[segment..segment + *n as usize];
            let length: u64 = samples.iter().map(|i| u64::from(self.lengths[*i as usize])).sum();
            token += length;
            segment += *n as usize;
            self.facts.rows += 1;
            self.facts.longest = self.facts.longest.max(length);
            out.put(&token.to_le_bytes())?;
            out.put(&(segment as u64).to_le_bytes())?;
        }
        Ok(out)
    }
}

struct HashedFile {
    out: BufWriter<File>,
    path: PathBuf,
    bytes: u64,
    hash: Xxh3,
}

impl HashedFile {
    fn create(path: &Path) -> Outcome<HashedFile> {
        let file = File::create_new(path).map_err(|e| Problem::io(&e, "making a file", path))?;
        let out = BufWriter::with_capacity(BUFFER, file);
        Ok(HashedFile { out, path: path.to_owned(), bytes: 0, hash: Xxh3::new() })
    }

    fn put(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|e| Problem::io(&e, "writing tokens", &self.path))
    }

    fn finish(mut self) -> Outcome<FileFacts> {
        let done = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        done.map_err(|e| Problem::io(&e, "writing tokens", &self.path))?;
        Ok(FileFacts { bytes: self.bytes, xxh3: format!("{:032x}", self.hash.digest128()) })
    }
}
