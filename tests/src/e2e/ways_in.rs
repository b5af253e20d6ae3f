//! The ways in: files held over the window, a path that is typed, the system's file dialog, driven by its own keys.

use super::calls::model_with_a_hard_name;
use super::desk::{Desk, missing};
use super::xdnd::{End, drag};
use std::path::PathBuf;
use std::sync::mpsc::channel;

/// Holds files over the window until the returned sender is used, and leaves then.
fn hold(desk: &Desk, paths: Vec<PathBuf>) -> (std::sync::mpsc::Sender<()>, tokio::task::JoinHandle<bool>) {
    let (leave, told) = channel();
    let display = desk.display.clone();
    let held = move || {
        let paths: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
        drag(&display, &paths, (500, 400), || told.recv().unwrap(), End::Leave).unwrap()
    };
    (leave, tokio::task::spawn_blocking(held))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_in_by_drag_by_path_and_by_dialog() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let (model, data) = (model_with_a_hard_name(&desk), desk.lab.chat(300));
    let (leave, held) = hold(&desk, vec![model.clone(), data.clone()]);
    desk.find("drag-over").await;
    desk.picture("drag-over").await;
    leave.send(()).unwrap();
    assert!(held.await.unwrap(), "the window did not take the drag");
    desk.until_gone("drag-over").await;
    desk.find("new-empty").await;

    desk.find("path").await.send_keys(model.to_str().unwrap()).await.unwrap();
    desk.click("path-add").await;
    desk.until_text("model-card", |text| text.contains("my model é")).await;
    desk.find("path").await.send_keys("/nowhere/at all").await.unwrap();
    desk.click("path-add").await;
    desk.until_text("refused-item", |text| text.contains("at all")).await;
    desk.picture("path-refused").await;

    dialog_of_files(&desk, &data).await;
    dialog_of_folders(&desk).await;
}

async fn dialog_of_files(desk: &Desk, data: &std::path::Path) {
    let screen = desk.screen();
    desk.click("browse-data").await;
    screen.focus(screen.window("Data"));
    desk.screen_picture("dialog-files");
    screen.press("Escape");
    screen.until_gone("Data");
    desk.find("need-data").await;
    // By its shortcut too.
    let screen = desk.keyboard();
    screen.press("Control+o");
    screen.choose("Data", data);
    desk.until_text("data-card", |text| text.contains("chat.jsonl")).await;
}

async fn dialog_of_folders(desk: &Desk) {
    let screen = desk.screen();
    desk.click("remove-model").await;
    desk.find("need-model").await;
    desk.click("browse-model").await;
    screen.choose("Model", &crate::journeys::lab::golden("models/llama"));
    desk.until_text("model-card", |text| text.contains("llama")).await;
    desk.find("[data-testid=plan][data-state=fits]").await;
}
