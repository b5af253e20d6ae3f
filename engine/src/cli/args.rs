//! Names of commands and options, as the contract fixes them.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Anneal: trains models on this machine.
#[derive(Debug, Parser)]
#[command(name = "anneal", version, about = "Trains language models on this machine: natively, exactly, crash-proof")]
pub struct Args {
    /// Folder of runs and history (else $ANNEAL_HOME, else the platform's data folder).
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Print one JSON value, or JSON lines for a stream.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print answers only.
    #[arg(long, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what files and folders are.
    Inspect {
        /// Models, data sets, checkpoints, adapters.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Read data another way: KEY=VALUE, as data.encoding=gb18030 or data.rows.row_not_json=skip.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Show one record as the trainer will see it.
    Preview {
        /// Model folder (its tokenizer and template are used).
        #[arg(long)]
        model: PathBuf,
        /// Data set.
        #[arg(long)]
        data: PathBuf,
        /// Record, from 1.
        #[arg(long, default_value_t = 1)]
        row: u64,
        /// Length limit in tokens.
        #[arg(long)]
        max_length: Option<u32>,
    },
    /// Show the complete plan of a job, or why it is refused.
    Plan {
        /// Job file, or "sample".
        job: PathBuf,
        /// Change a setting: KEY=VALUE.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Plan for the machine this file describes.
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
    /// Submit a job and follow it.
    Train {
        /// Job file, or "sample".
        job: PathBuf,
        /// Change a setting: KEY=VALUE.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Use this stored plan as it is.
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
    },
    /// Submit a job and return.
    Submit {
        /// Job file, or "sample".
        job: PathBuf,
        /// Change a setting: KEY=VALUE.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Use this stored plan as it is.
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
    },
    /// Follow a job.
    Watch {
        /// Job id, or its beginning.
        id: String,
    },
    /// Pause a job at its next step, its state safe on disk.
    Pause {
        /// Job id, or its beginning.
        id: String,
    },
    /// Go on with a paused, stopped, interrupted or failed job.
    Resume {
        /// Job id, or its beginning.
        id: String,
    },
    /// Stop a job at its next step, keeping a checkpoint.
    Stop {
        /// Job id, or its beginning.
        id: String,
    },
    /// Start a new job from a kept step of an old one.
    Fork {
        /// Job id, or its beginning.
        id: String,
        /// Step of a kept checkpoint.
        #[arg(long)]
        step: u64,
        /// Change a setting: KEY=VALUE.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// List jobs, newest first.
    Jobs {
        /// Words that must occur; also loss<2, lr>1e-4, state:failed, and when it was started: today, yesterday, week (the
        /// last seven days), month (the last thirty), 2026-11, 2026-11-30.
        #[arg(long)]
        search: Option<String>,
    },
    /// Show one job's record.
    Job {
        /// Job id, or its beginning.
        id: String,
    },
    /// Show what differs between two jobs.
    Compare {
        /// First job.
        a: String,
        /// Second job.
        b: String,
    },
    /// Print every step of a job.
    Metrics {
        /// Job id, or its beginning.
        id: String,
        /// Comma-separated values.
        #[arg(long)]
        csv: bool,
    },
    /// List a job's checkpoints.
    Checkpoints {
        /// Job id, or its beginning.
        id: String,
        /// Compare every checksum.
        #[arg(long)]
        verify: bool,
    },
    /// Move a job to the trash.
    Delete {
        /// Job id, or its beginning.
        id: String,
    },
    /// Merge and write a trained model, and prove it by its logits.
    Export {
        /// Checkpoint, model folder or adapter.
        #[arg(long)]
        from: PathBuf,
        /// Folder to write.
        #[arg(long)]
        to: PathBuf,
        /// safetensors, gguf or adapter.
        #[arg(long)]
        format: String,
        /// f32, bf16 or f16; q8_0 with gguf.
        #[arg(long, default_value = "f32")]
        dtype: String,
        /// Base of an adapter, where it cannot be found by itself.
        #[arg(long)]
        base: Option<PathBuf>,
    },
    /// Let a model speak.
    Generate {
        /// Model folder or checkpoint.
        #[arg(long)]
        model: PathBuf,
        /// Adapter folder.
        #[arg(long)]
        adapter: Option<PathBuf>,
        /// Raw text.
        #[arg(long, conflicts_with = "messages", required_unless_present = "messages")]
        prompt: Option<String>,
        /// JSON list of {role, content}, put through the chat template.
        #[arg(long)]
        messages: Option<PathBuf>,
        /// Most new tokens.
        #[arg(long, default_value_t = 128, value_parser = new_tokens, allow_negative_numbers = true)]
        max_tokens: u32,
        /// 0 = always the likeliest token.
        #[arg(long, default_value_t = 0.0, value_parser = temperature, allow_negative_numbers = true)]
        temperature: f64,
        /// Seed of sampling.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Loss and perplexity on a data set.
    Evaluate {
        /// Model folder or checkpoint.
        #[arg(long)]
        model: PathBuf,
        /// Adapter folder.
        #[arg(long)]
        adapter: Option<PathBuf>,
        /// Data set.
        #[arg(long)]
        data: PathBuf,
    },
    /// List models that are already on this machine, or change where they are looked for.
    Models {
        /// Look in this folder too, now and from now on.
        #[arg(long, value_name = "DIR", conflicts_with = "remove")]
        add: Option<PathBuf>,
        /// Look in this added folder no more; what lies in it stays.
        #[arg(long, value_name = "DIR")]
        remove: Option<PathBuf>,
    },
    /// Copy, link or move a model into a folder.
    Take {
        /// Name as `anneal models` lists it, or a path.
        model: PathBuf,
        /// Folder that it goes into.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// copy, link (same disk) or move.
        #[arg(long)]
        how: String,
        /// Only tell what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// What this machine has, and how busy it is.
    Machine {
        /// Again every second.
        #[arg(long)]
        watch: bool,
    },
    /// What is missing on this machine, and how to get it.
    Doctor,
    /// Measure beside the machine's limit.
    Bench {
        /// What.
        #[command(subcommand)]
        what: BenchCommand,
    },
    /// Not part of this version.
    #[command(hide = true)]
    Snapshot(Rest),
    /// Not part of this version.
    #[command(hide = true)]
    Pin(Rest),
    /// Not part of this version.
    #[command(hide = true)]
    Unpin(Rest),
    /// Not part of this version.
    #[command(hide = true)]
    Label(Rest),
    /// Not part of this version.
    #[command(hide = true)]
    Restore(Rest),
    /// Not part of this version.
    #[command(hide = true)]
    Serve(Rest),
    /// Runs a job's supervisor (internal).
    #[command(hide = true)]
    Supervise {
        /// Run folder.
        run_folder: PathBuf,
    },
}

/// Whatever follows the name of a command that a later version brings.
#[derive(Debug, clap::Args)]
pub struct Rest {
    /// Read for `--json` only.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// What `bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Training steps of a known shape on random weights and tokens.
    Train {
        /// smollm2-135m or nano.
        #[arg(long, default_value = "smollm2-135m")]
        shape: String,
        /// full or lora.
        #[arg(long, default_value = "full")]
        method: String,
        /// Rows.
        #[arg(long, default_value_t = 4)]
        batch: u32,
        /// Tokens a row.
        #[arg(long, default_value_t = 256)]
        length: u32,
        /// Timed steps.
        #[arg(long, default_value_t = 2)]
        steps: u32,
        /// cpu, or a card as cuda:0.
        #[arg(long, default_value = "cpu")]
        device: String,
        /// f32 or bf16; bf16 on cards only.
        #[arg(long, default_value = "f32")]
        precision: String,
    },
    /// Matrix products over the shapes of a training step.
    Gemm,
    /// AdamW.
    Optimizer {
        /// Parameters.
        #[arg(long, default_value_t = 124_000_000)]
        parameters: u64,
    },
    /// The built-in sample from start to end: its evaluation loss beside the recorded one.
    Sample,
    /// A run of a million steps and a HOME of ten thousand jobs: what the history takes to read and to answer.
    History,
}

fn new_tokens(word: &str) -> Result<u32, String> {
    let number = word.parse::<u32>().ok().filter(|n| *n > 0);
    number.ok_or_else(|| format!("it must be a whole number from 1 to {}", u32::MAX))
}

fn temperature(word: &str) -> Result<f64, String> {
    let number = word.parse::<f64>().ok().filter(|t| t.is_finite() && *t >= 0.0);
    number.ok_or_else(|| "it must be a finite number of at least 0; 0 = always the likeliest token".to_owned())
}

impl Command {
    /// True for commands that need neither the history nor a HOME that can be written.
    pub fn only_looks(&self) -> bool {
        use Command::*;
        matches!(
            self,
            Inspect { .. }
                | Preview { .. }
                | Export { .. }
                | Generate { .. }
                | Evaluate { .. }
                | Models { .. }
                | Take { .. }
                | Machine { .. }
                | Doctor
                | Bench { .. }
        )
    }

    /// The name of a command that a later version brings, and what followed it.
    pub fn later(&self) -> Option<(&'static str, &[String])> {
        let (name, rest) = match self {
            Command::Snapshot(rest) => ("snapshot", rest),
            Command::Pin(rest) => ("pin", rest),
            Command::Unpin(rest) => ("unpin", rest),
            Command::Label(rest) => ("label", rest),
            Command::Restore(rest) => ("restore", rest),
            Command::Serve(rest) => ("serve", rest),
            _ => return None,
        };
        Some((name, &rest.rest))
    }
}
