//! Low-rank adapters in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors`.

use protocol::Outcome;
use std::io;
use std::path::Path;

/// What `adapter_config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Rank.
    pub rank: u32,
    /// Numerator of the scale alpha / rank.
    pub alpha: f64,
    /// Dropout on the adapter's input.
    pub dropout: f64,
    /// Projections, in the order of `facts::PROJECTIONS`.
    pub targets: Vec<String>,
    /// Base model, as the file names it.
    pub base: String,
}

/// An open adapter folder.
pub struct Adapter {
    /// Its configuration.
    pub config: AdapterConfig,
}

impl Adapter {
    /// Opens and checks a folder.
    pub fn open(folder: &Path) -> Outcome<Adapter> {
        todo!("{folder:?}")
    }

    /// Reads one tensor as f32 under PEFT's name.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Outcome<()> {
        todo!("{name} {}", out.len())
    }
}

/// Text of an `adapter_config.json` that PEFT loads.
pub fn config_json(config: &AdapterConfig) -> String {
    todo!("{config:?}")
}

/// Unused in this landing; keeps the import honest.
pub fn is_adapter(folder: &Path) -> io::Result<bool> {
    Ok(folder.join("adapter_config.json").try_exists()?)
}
