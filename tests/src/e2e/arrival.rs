//! A job that somebody else starts, at a terminal over the same HOME, comes into the open window by itself and goes by
//! itself.

use super::acts::{job_file, number};
use super::desk::{Desk, missing};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_command_line_comes_into_the_open_window_and_ends_there_by_itself() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.click("nav-history").await;
    desk.find("history-empty").await;
    desk.until_text("strip-jobs", |text| text == "nothing running").await;
    let file = job_file(&desk, "from a terminal", 1500);
    let follower = desk.lab.stream(&["train", file.to_str().unwrap()]);

    // Nothing is clicked from here on.
    desk.until_text("strip-jobs", |text| text == "1 running").await;
    desk.until_text("rail-job", |text| text.contains("from a terminal") && text.contains("left")).await;
    desk.until_text("history-row", |text| text.contains("from a terminal")).await;
    desk.until_text("history-count", |text| number(text) == 1).await;
    desk.find("[data-testid=history-row] [data-state=running]").await;
    desk.picture("arrived").await;

    let followed = tokio::task::spawn_blocking(|| follower.wait_with_output()).await.unwrap().unwrap();
    assert!(followed.status.success(), "{}", crate::journeys::lab::words(&followed));
    desk.until_text("strip-jobs", |text| text == "nothing running").await;
    desk.until_gone("rail-job").await;
    desk.until_text("toast", |text| text.contains("from a terminal is done")).await;
    desk.find("[data-testid=history-row] [data-state=finished]").await;
    desk.picture("arrived-and-ended").await;
    desk.click("toast-open").await;
    desk.find("[data-testid=run-state][data-state=finished]").await;
}
