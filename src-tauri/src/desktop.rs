//! What the desktop around the window does for it: file dialogs, the file manager, notifications. All through GTK, which
//! the webview brings; each call runs on the window's own thread.
//!
//! Not here: what is done with a path that was chosen (`commands`).

use gtk::gio::{self, DBusCallFlags, DBusConnection, DBusSignalFlags};
use gtk::glib::{ToVariant, Variant, dgettext, markup_escape_text};
use gtk::prelude::{DialogExt, FileChooserExt, GtkWindowExt, MessageDialogExt, NativeDialogExt};
use protocol::problem::{Code, Outcome, Problem};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use tauri::{AppHandle, Emitter, Manager, Runtime};

const BUS: &str = "org.freedesktop.Notifications";
const OBJECT: &str = "/org/freedesktop/Notifications";
/// Longest wait for a notification service.
const PATIENCE_MS: i32 = 2000;
/// Notifications that can still be clicked; older ones have left the screen.
const CLICKABLE: usize = 100;

/// What a dialog lets a person choose.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// One folder that is there.
    Folder,
    /// Files that are there.
    Files,
    /// A folder to write into, made where it is not there.
    NewFolder,
}

/// Opens a file dialog and waits for it; nothing where it was left without a choice. Never call it on the window's thread.
pub fn choose<R: Runtime>(app: &AppHandle<R>, title: &'static str, choice: Choice) -> Outcome<Vec<PathBuf>> {
    let (chosen, answer) = channel();
    let of = app.clone();
    let shown = app.run_on_main_thread(move || match gtk::is_initialized_main_thread() {
        true => open_dialog(&of, title, choice, chosen),
        false => drop(chosen.send(Err(no_desktop()))),
    });
    shown.map_err(|e| Problem::internal("the dialog could not be opened").why(e.to_string()))?;
    // The sender goes with the dialog, whatever ends it.
    answer.recv().unwrap_or_else(|_| Ok(Vec::new()))
}

fn no_desktop() -> Problem {
    Problem::new(Code::DeviceUnavailable, "there is no desktop that could show a dialog")
        .remedy("type the path instead")
}

/// Shows what keeps the window from opening and waits until it is closed; silent where there is no display. For whoever
/// started it from a menu, who sees no terminal. Call it on the main thread.
pub fn tell(problem: &Problem) {
    if gtk::init().is_err() {
        return;
    }
    let (flags, none) = (gtk::DialogFlags::MODAL, None::<&gtk::Window>);
    let what = readable(&problem.what);
    let dialog = gtk::MessageDialog::new(none, flags, gtk::MessageType::Error, gtk::ButtonsType::Close, &what);
    dialog.set_title("Anneal");
    dialog.set_secondary_text(Some(&reasons(problem)));
    dialog.run();
}

/// Why, which file and what can be done, one a line.
fn reasons(problem: &Problem) -> String {
    let place = problem.place.file.as_deref().unwrap_or_default();
    let parts = [problem.why.as_str(), place, problem.remedy.as_str()].map(readable);
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// A path may hold anything: nothing in it breaks or turns a line.
fn readable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn open_dialog<R: Runtime>(app: &AppHandle<R>, title: &str, choice: Choice, chosen: Sender<Outcome<Vec<PathBuf>>>) {
    let action = match choice {
        Choice::Files => gtk::FileChooserAction::Open,
        Choice::Folder => gtk::FileChooserAction::SelectFolder,
        Choice::NewFolder => gtk::FileChooserAction::CreateFolder,
    };
    let parent = app.get_webview_window("main").and_then(|window| window.gtk_window().ok());
    // GTK would call it "Open", and has its own word for every language.
    let accept = matches!(choice, Choice::NewFolder).then(|| dgettext(Some("gtk30"), "_Save"));
    let dialog = gtk::FileChooserNative::new(Some(title), parent.as_ref(), action, accept.as_deref(), None);
    dialog.set_modal(true);
    dialog.set_select_multiple(matches!(choice, Choice::Files));
    dialog.connect_response(move |dialog, response| {
        let accepted = response == gtk::ResponseType::Accept;
        let _ = chosen.send(Ok(if accepted { dialog.filenames() } else { Vec::new() }));
        OPEN.with_borrow_mut(|open| open.clear());
    });
    dialog.show();
    // It lives as long as somebody holds it.
    OPEN.with_borrow_mut(|open| open.push(dialog));
}

thread_local! {
    static OPEN: RefCell<Vec<gtk::FileChooserNative>> = const { RefCell::new(Vec::new()) };
    static CLICKS: RefCell<HashMap<u32, String>> = RefCell::default();
    static LISTENING: RefCell<Option<DBusConnection>> = const { RefCell::new(None) };
}

/// Opens a folder in the file manager.
pub fn reveal(folder: &Path) -> Outcome<()> {
    let address = gtk::gio::prelude::FileExt::uri(&gio::File::for_path(folder));
    gio::AppInfo::launch_default_for_uri(&address, None::<&gio::AppLaunchContext>).map_err(|e| {
        Problem::new(Code::NotFound, "no file manager could be opened")
            .why(e.to_string())
            .file(folder)
            .remedy("open this folder yourself")
    })
}

/// Tells the desktop; a click tells the page `open-job`. Silent where nothing listens. Call it on the window's thread.
pub fn notify<R: Runtime>(app: &AppHandle<R>, title: &str, body: &str, job: String) {
    if !bus_is_there() {
        return;
    }
    let (app, title, body) = (app.clone(), title.to_owned(), markup_escape_text(body).to_string());
    gio::bus_get(gio::BusType::Session, gio::Cancellable::NONE, move |bus| {
        if let Ok(bus) = bus {
            listen(&app, &bus);
            send(&bus, &title, &body, job);
        }
    });
}

/// GTK would start a bus of its own where there is none.
fn bus_is_there() -> bool {
    let socket = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("bus"));
    std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some() || socket.is_some_and(|socket| socket.exists())
}

fn send(bus: &DBusConnection, title: &str, body: &str, job: String) {
    let actions = ["default", ""].map(str::to_owned).to_vec();
    let hints = HashMap::from([("desktop-entry".to_owned(), "anneal".to_variant())]);
    let message = ("Anneal", 0u32, "anneal", title, body, actions, hints, -1i32).to_variant();
    let (flags, none) = (DBusCallFlags::NONE, gio::Cancellable::NONE);
    let answered = move |answer: Result<Variant, gtk::glib::Error>| {
        let number = answer.ok().and_then(|answer| answer.get::<(u32,)>());
        if let Some((number,)) = number {
            CLICKS.with_borrow_mut(|clicks| {
                if clicks.len() >= CLICKABLE {
                    clicks.clear();
                }
                clicks.insert(number, job)
            });
        }
    };
    bus.call(Some(BUS), OBJECT, BUS, "Notify", Some(&message), None, flags, PATIENCE_MS, none, answered);
}

/// Hears clicks, from the first notification on.
fn listen<R: Runtime>(app: &AppHandle<R>, bus: &DBusConnection) {
    if LISTENING.with_borrow(Option::is_some) {
        return;
    }
    let app = app.clone();
    let clicked = move |_: &DBusConnection, _: &str, _: &str, _: &str, _: &str, what: &Variant| {
        let job = what.get::<(u32, String)>().and_then(|(n, _)| CLICKS.with_borrow_mut(|clicks| clicks.remove(&n)));
        if let (Some(job), Some(window)) = (job, app.get_webview_window("main")) {
            let _ = window.unminimize();
            let _ = window.set_focus();
            let _ = app.emit_to("main", "open-job", job);
        }
    };
    let none = DBusSignalFlags::NONE;
    bus.signal_subscribe(Some(BUS), Some(BUS), Some("ActionInvoked"), Some(OBJECT), None, none, clicked);
    LISTENING.set(Some(bus.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialog_says_why_where_and_what_to_do() {
        let problem = Problem::new(Code::HomeUnsuitable, "runs cannot be kept in this folder")
            .why("it is no folder")
            .file(Path::new("/dev/fu\nll"))
            .remedy("give a folder of your own");
        assert_eq!(reasons(&problem), "it is no folder\n\n/dev/fu\\nll\n\ngive a folder of your own");
        assert_eq!(reasons(&Problem::new(Code::Busy, "busy")), "");
    }
}
