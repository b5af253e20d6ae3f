//! A desktop bus of its own, and on it a notification service that shows nothing, tells what it was sent and is clicked by
//! the test.

use super::desk::{Desk, Group};
use gio::prelude::ToVariant;
use gio::{Cancellable, DBusCallFlags, DBusConnection, DBusConnectionFlags, DBusNodeInfo};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const NAME: &str = "org.freedesktop.Notifications";
const OBJECT: &str = "/org/freedesktop/Notifications";
const SHAPE: &str = r#"<node><interface name="org.freedesktop.Notifications">
    <method name="Notify">
        <arg type="s" direction="in"/><arg type="u" direction="in"/><arg type="s" direction="in"/>
        <arg type="s" direction="in"/><arg type="s" direction="in"/><arg type="as" direction="in"/>
        <arg type="a{sv}" direction="in"/><arg type="i" direction="in"/><arg type="u" direction="out"/>
    </method>
    <signal name="ActionInvoked"><arg type="u"/><arg type="s"/></signal>
</interface></node>"#;

/// A desktop bus; nothing where there is no program for one.
pub fn bus(desk: &Desk) -> Option<(Group, String)> {
    let mut command = desk.environment(Command::new("dbus-daemon"));
    command.args(["--session", "--nofork", "--print-address"]).stdout(Stdio::piped()).process_group(0);
    let mut daemon = command.spawn().ok()?;
    let mut address = String::new();
    BufReader::new(daemon.stdout.take()?).read_line(&mut address).ok()?;
    Some((Group(daemon), address.trim().to_owned()))
}

/// A notification as it came.
#[derive(Debug)]
pub struct Notice {
    /// What a click names.
    pub number: u32,
    /// Its title.
    pub title: String,
    /// What stands below.
    pub body: String,
}

/// The service.
pub struct Notices {
    bus: DBusConnection,
    heard: Receiver<Notice>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Notices {
    /// Takes the name on this bus.
    pub fn serve(address: &str) -> Notices {
        let (told, heard) = channel();
        let (ready, up) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let (address, stop) = (address.to_owned(), Arc::clone(&ended));
        let serving = move || {
            let context = gio::glib::MainContext::new();
            let turns = || {
                ready.send(register(&address, told)).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    context.iteration(false);
                    std::thread::sleep(Duration::from_millis(5));
                }
            };
            context.with_thread_default(turns).unwrap();
        };
        let thread = Some(std::thread::spawn(serving));
        Notices { bus: up.recv().unwrap(), heard, ended, thread }
    }

    /// The next notification.
    pub fn next(&self) -> Notice {
        self.heard.recv_timeout(super::desk::PATIENCE).expect("no notification came")
    }

    /// Notifications that came and were not taken.
    pub fn more(&self) -> Vec<Notice> {
        self.heard.try_iter().collect()
    }

    /// Clicks one.
    pub fn click(&self, notice: &Notice) {
        let words = (notice.number, "default").to_variant();
        self.bus.emit_signal(None, OBJECT, NAME, "ActionInvoked", Some(&words)).unwrap();
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn register(address: &str, told: Sender<Notice>) -> DBusConnection {
    let flags = DBusConnectionFlags::AUTHENTICATION_CLIENT | DBusConnectionFlags::MESSAGE_BUS_CONNECTION;
    let bus = DBusConnection::for_address_sync(address, flags, None, Cancellable::NONE).unwrap();
    let shape = DBusNodeInfo::for_xml(SHAPE).unwrap().lookup_interface(NAME).unwrap();
    let numbers = AtomicU32::new(1);
    let called = move |_: DBusConnection,
                       _: &str,
                       _: &str,
                       _: &str,
                       _: &str,
                       words: gio::glib::Variant,
                       call: gio::DBusMethodInvocation| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let text = |at: usize| words.child_value(at).get::<String>().unwrap_or_default();
        let _ = told.send(Notice { number, title: text(3), body: text(4) });
        call.return_value(Some(&(number,).to_variant()));
    };
    let nothing = |_: DBusConnection, _: &str, _: &str, _: &str, _: &str| 0.to_variant();
    bus.register_object(OBJECT, &shape, called, nothing, |_, _, _, _, _, _| false).unwrap();
    let (daemon, object) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");
    let (wish, none) = ((NAME, 4u32).to_variant(), DBusCallFlags::NONE);
    bus.call_sync(Some(daemon), object, daemon, "RequestName", Some(&wish), None, none, 5000, Cancellable::NONE)
        .unwrap();
    bus
}
