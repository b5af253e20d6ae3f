//! A desk of its own for each test: a display, a driver, HOME and the window, all gone when the test is over.

use super::screen::Screen;
use crate::journeys::lab::{Lab, binary, kill, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use thirtyfour::prelude::*;

/// Longest wait for something that the page shows: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// The desk.
pub struct Desk {
    /// HOME and the command line beside it.
    pub lab: Lab,
    /// Name of the display.
    pub display: String,
    driver: Option<WebDriver>,
    variables: Vec<(&'static str, String)>,
    // In this order: the driver goes before its display.
    processes: Vec<Group>,
    xvfb: Group,
}

/// A process and all that it started, ended together.
pub struct Group(pub Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Says why a test is left out where a program of the desk is missing.
pub fn missing() -> bool {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let absent = |name: &&str| !folders.iter().any(|folder| folder.join(name).is_file());
    let missing: Vec<&str> = ["Xvfb", "WebKitWebDriver"].into_iter().filter(absent).collect();
    if !missing.is_empty() {
        println!("skipped: {} is not installed", missing.join(" and "));
    }
    !missing.is_empty()
}

impl Desk {
    /// A desk with no window yet.
    pub fn new() -> Desk {
        Desk::beside(Lab::new())
    }

    /// A desk over this HOME, with no window yet.
    pub fn beside(lab: Lab) -> Desk {
        let (xvfb, display) = xvfb();
        let desk = Desk { lab, display, driver: None, variables: Vec::new(), processes: Vec::new(), xvfb };
        for name in ["user", "config", "cache", "data", "runtime"] {
            std::fs::create_dir_all(desk.lab.path(name)).unwrap();
        }
        desk
    }

    /// A desk with an open window.
    pub async fn with_window() -> Desk {
        let mut desk = Desk::new();
        desk.open(&[]).await;
        desk
    }

    /// Sets a variable for the windows that are opened from now on.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    /// Opens the window with these arguments under a driver.
    pub async fn open(&mut self, arguments: &[&str]) {
        let port = free_port();
        let mut command = self.environment(Command::new("WebKitWebDriver"));
        command.arg(format!("--port={port}")).arg("--host=127.0.0.1").env("TAURI_WEBVIEW_AUTOMATION", "true");
        let log = std::fs::File::create(self.lab.path("driver.log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(Group(command.process_group(0).spawn().unwrap()));
        let up = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(until(PATIENCE, up), "the driver never listened");
        let mut capabilities = Capabilities::new();
        let options = json!({ "binary": binary("anneal-desktop"), "args": arguments });
        capabilities.set("webkitgtk:browserOptions", options).unwrap();
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities).await;
        let driver = driver.unwrap_or_else(|e| panic!("no session: {e}\n{}", self.said()));
        driver.set_script_timeout(PATIENCE).await.unwrap();
        self.driver = Some(driver);
    }

    /// Starts the program as a launcher does, with nobody driving it.
    pub fn launch(&self, arguments: &[&str]) -> Group {
        let mut command = self.environment(Command::new(binary("anneal-desktop")));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Group(command.spawn().unwrap())
    }

    /// Ends the display under all that draws on it, and takes another for the windows to come.
    pub fn lose_display(&mut self) {
        let (xvfb, display) = xvfb();
        self.xvfb = xvfb;
        self.display = display;
    }

    /// Ends window and driver as a crash would.
    pub fn crash(&mut self) {
        for (pid, _) in self.lab.processes().into_iter().filter(|(_, name)| name == "anneal-desktop") {
            kill(pid, "KILL");
        }
        // Its own farewell would wait for the window.
        if let Some(driver) = self.driver.take() {
            let _ = driver.leak();
        }
        self.processes.clear();
    }

    /// A command with the desk's environment and nothing of this machine's user.
    pub fn environment(&self, mut command: Command) -> Command {
        let folder = |name: &str| self.lab.path(name);
        command
            .env("HOME", folder("user"))
            .env("XDG_CONFIG_HOME", folder("config"))
            .env("XDG_CACHE_HOME", folder("cache"))
            .env("XDG_DATA_HOME", folder("data"))
            .env("XDG_RUNTIME_DIR", folder("runtime"))
            .env("ANNEAL_HOME", self.lab.home())
            .envs(self.lab.environment().iter().map(|(name, value)| (name, value)))
            .env("DISPLAY", &self.display)
            .env("LANG", "C.UTF-8")
            .env("GDK_BACKEND", "x11")
            // Drawn at once and without a graphics stack: a picture then never waits for a frame.
            .env("WEBKIT_DISABLE_COMPOSITING_MODE", "1")
            .env("WEBKIT_DISABLE_DMABUF_RENDERER", "1")
            .env("LIBGL_ALWAYS_SOFTWARE", "1")
            .env("NO_AT_BRIDGE", "1")
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// The page.
    pub fn page(&self) -> &WebDriver {
        self.driver.as_ref().expect("no window is open")
    }

    /// The first element with this mark, once it is there.
    pub async fn find(&self, mark: &str) -> WebElement {
        let found = self.page().query(By::Css(css(mark))).wait(PATIENCE, LOOK).first().await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{mark} is not there: {error}\n{}", self.seen().await),
        }
    }

    /// Clicks the element with this mark, once it can be clicked.
    pub async fn click(&self, mark: &str) {
        let element = self.find(mark).await;
        if let Err(error) = element.wait_until().wait(PATIENCE, LOOK).clickable().await {
            panic!("{mark} cannot be clicked: {error}\n{}", self.seen().await);
        }
        // Drawn anew in this moment: a second look finds the new one.
        if element.click().await.is_err() {
            self.find(mark).await.click().await.unwrap();
        }
    }

    /// Text of the element with this mark, whether it can be selected or not.
    pub async fn text(&self, mark: &str) -> String {
        self.find(mark).await.prop("textContent").await.ok().flatten().unwrap_or_default()
    }

    /// Waits until the text of an element satisfies something.
    pub async fn until_text(&self, mark: &str, good: impl Fn(&str) -> bool) -> String {
        let begun = std::time::Instant::now();
        loop {
            let text = self.text(mark).await;
            if good(&text) {
                return text;
            }
            assert!(begun.elapsed() < PATIENCE, "{mark} still says: {text}\n{}", self.seen().await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Runs a script in the page.
    pub async fn script(&self, text: &str) -> Value {
        let ran = self.page().execute(text, Vec::<Value>::new()).await;
        ran.unwrap_or_else(|e| panic!("{text}: {e}")).json().clone()
    }

    /// Runs a script that calls `done(value)`.
    pub async fn wait_script(&self, text: &str) -> Value {
        let whole = format!("const done = arguments[arguments.length - 1];\n{text}");
        let ran = self.page().execute_async(whole, Vec::<Value>::new()).await;
        ran.unwrap_or_else(|e| panic!("{text}: {e}")).json().clone()
    }

    /// Calls a command as the page would: ["ok", answer] or ["error", problem].
    pub async fn call(&self, command: &str, words: Value) -> (bool, Value) {
        let text = format!(
            "window.__TAURI_INTERNALS__.invoke({}, {words}).then((v) => done([true, v]), (e) => done([false, e]));",
            json!(command)
        );
        let answer = self.wait_script(&text).await;
        (answer[0] == json!(true), answer[1].clone())
    }

    /// The display itself, as a person sits at it.
    pub fn screen(&self) -> Screen {
        Screen::open(&self.display).unwrap()
    }

    /// The display with the keyboard in the window.
    pub fn keyboard(&self) -> Screen {
        let screen = self.screen();
        screen.focus(screen.window("Anneal"));
        screen
    }

    /// Waits until nothing has this mark.
    pub async fn until_gone(&self, mark: &str) {
        let css = css(mark);
        let begun = std::time::Instant::now();
        while !self.page().find_all(By::Css(&css)).await.unwrap_or_default().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{mark} is still there\n{}", self.seen().await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Drops paths on the window.
    pub async fn drop_paths(&self, paths: &[&Path]) {
        let (display, paths) = (self.display.clone(), paths.iter().map(|p| p.to_path_buf()).collect::<Vec<_>>());
        let dropping = move || {
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            super::xdnd::drag(&display, &paths, (500, 400), || {}, super::xdnd::End::Drop).map_err(|e| e.to_string())
        };
        let taken = tokio::task::spawn_blocking(dropping).await.unwrap().unwrap();
        assert!(taken, "the window did not take the drop");
    }

    /// Keeps a picture of the page.
    pub async fn picture(&self, name: &str) {
        let folder = crate::source::root().join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let begun = std::time::Instant::now();
        // A window that has just come up has nothing drawn yet.
        let png = loop {
            let png = self.page().screenshot_as_png().await.unwrap();
            if png.len() > 10_000 {
                break png;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is an empty picture");
            tokio::time::sleep(LOOK).await;
        };
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }

    /// Keeps a picture of the whole screen: dialogs are no part of the page.
    pub fn screen_picture(&self, name: &str) {
        let folder = crate::source::root().join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        // What was asked of the screen just now is drawn a moment later.
        std::thread::sleep(Duration::from_millis(400));
        let frame = self.screen().picture().unwrap();
        super::film::write(&folder.join(format!("{name}.png")), &[(frame, 0)]);
    }

    /// What the page shows, for messages of failed tests.
    pub async fn seen(&self) -> String {
        self.picture("failed").await;
        let body = self.page().execute("return document.body.textContent", Vec::<Value>::new()).await;
        let text = body.map(|b| b.json().as_str().unwrap_or_default().to_owned()).unwrap_or_default();
        format!("--- page\n{text}\n--- driver\n{}", self.said())
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.lab.path("driver.log")).unwrap_or_default()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.crash();
    }
}

/// A mark is a `data-testid`, or whatever else CSS can name.
fn css(mark: &str) -> String {
    if mark.contains(['[', '.', '#', ' ']) { mark.to_owned() } else { format!("[data-testid=\"{mark}\"]") }
}

/// A display that nothing else draws on.
fn xvfb() -> (Group, String) {
    let mut command = Command::new("Xvfb");
    command.args(["-displayfd", "1", "-screen", "0", "1440x900x24", "-nolisten", "tcp", "-noreset"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
    let mut number = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
    (Group(child), format!(":{}", number.trim()))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
