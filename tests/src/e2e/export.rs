//! What leaves Anneal: files written where a person says, a folder shown by the file manager.

use super::acts::{finished, open_record};
use super::desk::{Desk, missing};
use gio::prelude::AppInfoExt;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_exported_by_dialog_and_nothing_is_written_without_a_choice() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    let id = finished(&desk, "to export", 30);
    open_record(&desk, &id).await;
    desk.click("[data-testid=record] [data-testid=export]").await;
    // The newest is offered.
    desk.until_text("export-dialog", |text| text.contains("Export step 30")).await;
    desk.picture("export").await;
    let screen = desk.screen();
    desk.click("export-start").await;
    screen.focus(screen.window("Export to"));
    desk.screen_picture("dialog-export");
    screen.press("Escape");
    screen.until_gone("Export to");
    desk.until_text("export-start", |text| text.contains("Export")).await;
    assert!(desk.page().find_all(thirtyfour::By::Css("[data-testid=export-done]")).await.unwrap().is_empty());

    let to = desk.lab.path("exported");
    desk.click("export-start").await;
    screen.choose("Export to", &to);
    desk.until_text("export-done", |text| text.contains("written")).await;
    desk.picture("exported").await;
    let facts = desk.lab.json(&["inspect", to.to_str().unwrap()]);
    assert_eq!((&facts[0]["kind"], &facts[0]["model"]["parameters"]), (&json!("model"), &json!(117_056)), "{facts}");
    desk.click("export-cancel").await;
    desk.until_gone("export-dialog").await;
    from_run(&desk).await;
    reveal(&desk).await;
}

/// The dialog of Run is the same one.
async fn from_run(desk: &Desk) {
    desk.click("open-run").await;
    desk.click("run-export").await;
    desk.until_text("export-dialog", |text| text.contains("30")).await;
    desk.keyboard().press("Escape");
    desk.until_gone("export-dialog").await;
}

/// Where nothing can show folders, that is said calmly.
async fn reveal(desk: &Desk) {
    if let Some(shows) = gio::AppInfo::default_for_type("inode/directory", false) {
        println!("skipped in part: {} shows folders here", shows.name());
        return;
    }
    desk.click("run-reveal").await;
    let said = desk.until_text("run-refused", |text| text.contains("file manager")).await;
    assert!(said.contains("open this folder yourself"), "{said}");
    desk.picture("reveal-without-a-file-manager").await;
}
