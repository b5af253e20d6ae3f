//! Ollama's folder: `manifests/REGISTRY/NAMESPACE/NAME/TAG` is JSON that lists layers by digest; the layer of the model is
//! the GGUF file `blobs/sha256-DIGEST`.
//!
//! Not here: layers of templates, adapters and licences.

use super::walk::{self, Look, What};
use super::weights::Found;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Longest manifest, in bytes: a dozen layers take 3 KB.
const MANIFEST_BYTES: u64 = 1 << 20;
/// The registry that its names leave out.
const REGISTRY: &str = "registry.ollama.ai";
/// The namespace that its names leave out.
const NAMESPACE: &str = "library";
/// Media type of weights.
const MODEL: &str = "application/vnd.ollama.image.model";

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
}

/// Models of a folder of Ollama, each with its name.
pub fn models(look: &mut Look, root: &Path) -> Vec<(String, Found)> {
    let mut all = Vec::new();
    for registry in look.folders(&root.join("manifests")) {
        for namespace in look.folders(&registry.path) {
            for model in look.folders(&namespace.path) {
                let tags = look.list(&model.path);
                for tag in tags.iter().filter(|tag| tag.what == What::File) {
                    let Some(found) = found(root, &tag.path) else { continue };
                    all.push((name(&registry.name, &namespace.name, &model.name, &tag.name), found));
                }
            }
        }
    }
    all
}

/// The name as Ollama writes it: what is usual is left out.
fn name(registry: &str, namespace: &str, model: &str, tag: &str) -> String {
    match (registry, namespace) {
        (REGISTRY, NAMESPACE) => format!("{model}:{tag}"),
        (REGISTRY, _) => format!("{namespace}/{model}:{tag}"),
        _ => format!("{registry}/{namespace}/{model}:{tag}"),
    }
}

fn found(root: &Path, manifest: &Path) -> Option<Found> {
    let manifest: Manifest = serde_json::from_str(&walk::small_text(manifest, MANIFEST_BYTES)?).ok()?;
    let layer = manifest.layers.iter().find(|layer| layer.media_type == MODEL)?;
    let path = blob(root, &layer.digest)?;
    let bytes = path.symlink_metadata().ok()?.len();
    walk::is_gguf(&path).then_some(Found { path, format: "gguf", bytes, stem: None })
}

/// Where the blob of a digest lies; `None` for what is no digest, so that none leads outside.
fn blob(root: &Path, digest: &str) -> Option<PathBuf> {
    let hex = digest.strip_prefix("sha256:")?;
    let is_hash = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_hash.then(|| root.join("blobs").join(format!("sha256-{hex}")))
}

/// True for a folder laid out as Ollama's.
pub fn is_root(root: &Path) -> bool {
    let folder = |name: &str| root.join(name).symlink_metadata().is_ok_and(|status| status.is_dir());
    folder("manifests") && folder("blobs")
}
