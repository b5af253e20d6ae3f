//! LM Studio's folder: PUBLISHER/MODEL/*.gguf; several quantisations of a model lie side by side.
//!
//! Not here: where the folder is (`surroundings`).

use super::walk::Look;
use super::weights::{self, Found};
use std::path::Path;

/// Models of a folder of LM Studio, each with its name.
pub fn models(look: &mut Look, root: &Path) -> Vec<(String, Found)> {
    let mut all = Vec::new();
    for publisher in look.folders(root) {
        for model in look.folders(&publisher.path) {
            let entries = look.list(&model.path);
            let mut found = weights::in_folder(&model.path, &entries, &weights::itself);
            // What lies there besides is for programs of another kind of machine.
            found.retain(|one| one.format == "gguf");
            all.extend(super::named(&format!("{}/{}", publisher.name, model.name), found));
        }
    }
    all
}
