//! What the window does with what cannot be: a plan that does not fit, a damaged history.

use super::acts::{finished, number, open_record};
use super::calls::model_with_a_hard_name;
use super::desk::{Desk, missing};

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_does_not_fit_leads_to_one_that_does() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let (model, data) = (model_with_a_hard_name(&desk), desk.lab.chat(300));
    desk.drop_paths(&[&model, &data]).await;
    desk.find("[data-testid=plan][data-state=fits]").await;
    desk.find("memory").await.send_keys("1MB").await.unwrap();
    desk.find("[data-testid=plan][data-state=refused]").await;
    desk.find("overflow-bar").await;
    desk.until_text("refusal", |text| text.contains("fits")).await;
    desk.until_text("start", |text| text.contains("Does not fit")).await;
    desk.picture("does-not-fit").await;
    assert_eq!(desk.find("start").await.is_enabled().await.ok(), Some(false));
    // A way out is as good as its word.
    desk.click("[data-testid=refusal] [data-testid^=remedy-budget]").await;
    desk.find("[data-testid=plan][data-state=fits]").await;
    desk.picture("fits-after-all").await;
    desk.click("start").await;
    desk.find("place-run").await;
    desk.until_text("run-step", |text| number(text) >= 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_history_is_said_and_complete() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let one = finished(&desk, "one", 20);
    finished(&desk, "two", 20);
    damage(&desk.lab.home().join("history.sqlite3"));
    desk.open(&[]).await;
    desk.click("nav-history").await;
    desk.until_text("history-notice", |text| text.contains("rebuilt")).await;
    desk.until_text("history-count", |text| number(text) == 2).await;
    desk.until_text("history-table", |text| text.contains("one") && text.contains("two")).await;
    desk.picture("history-rebuilt").await;
    open_record(&desk, &one).await;
    desk.until_text("record-summary", |text| text.contains("20")).await;
}

/// Turns bits all over a file, but not in its first page: what lies where in it is the database's own affair.
fn damage(file: &std::path::Path) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[4096..].iter_mut().step_by(7).for_each(|byte| *byte ^= 0xA5);
    std::fs::write(file, bytes).unwrap();
}
