//! Names every command of the page, so that each is denied unless `capabilities/main.json` allows it, and packs `ui/dist`.

/// What the page may ask for; `src/commands.rs` has one function each.
const COMMANDS: [&str; 35] = [
    "add_place",
    "alive",
    "browse",
    "cancel",
    "checkpoints",
    "close_now",
    "compare",
    "curve",
    "doctor",
    "export_files",
    "follow",
    "find_row",
    "fork",
    "generate",
    "inspect",
    "inspect_data",
    "job",
    "jobs",
    "log",
    "machine",
    "notify",
    "plan",
    "preview",
    "remove",
    "remove_place",
    "request",
    "restore",
    "reveal",
    "rows",
    "sample_spec",
    "set_title",
    "shelf",
    "startup",
    "submit",
    "take_model",
];

fn main() {
    println!("cargo:rerun-if-changed=../ui/dist");
    let manifest = tauri_build::AppManifest::new().commands(&COMMANDS);
    if let Err(error) = tauri_build::try_build(tauri_build::Attributes::new().app_manifest(manifest)) {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}
