//! A person's hands and eyes at the display, in pure X11: keys on a real keyboard, windows by their titles, the wish to
//! close, what was copied, a picture of all that is on the screen.
//!
//! Not here: what a page shows (`desk`), dragging (`xdnd`).

use super::film::Frame;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, CreateWindowAux,
    EventMask, ImageFormat, InputFocus, KEY_PRESS_EVENT, KEY_RELEASE_EVENT, MapState, Window, WindowClass,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

type Answer<T> = Result<T, Box<dyn Error>>;

x11rb::atom_manager! {
    /// Names of the protocol.
    Atoms: AtomsCookie {
        WM_PROTOCOLS, WM_DELETE_WINDOW, _NET_WM_NAME, UTF8_STRING, CLIPBOARD, PASTE,
    }
}

/// Names of keys that write no character.
const NAMED: [(&str, u32); 7] = [
    ("Return", 0xff0d),
    ("Escape", 0xff1b),
    ("Tab", 0xff09),
    ("Down", 0xff54),
    ("Control", 0xffe3),
    ("Shift", 0xffe1),
    ("Delete", 0xffff),
];

/// The display.
pub struct Screen {
    connection: RustConnection,
    atoms: Atoms,
    root: Window,
    /// Key symbols of each key code from the first one on, plain and with Shift.
    keys: Vec<(u32, u8, bool)>,
}

impl Screen {
    /// The display of this name.
    pub fn open(display: &str) -> Answer<Screen> {
        let (connection, screen) = x11rb::connect(Some(display))?;
        let atoms = Atoms::new(&connection)?.reply()?;
        let setup = connection.setup();
        let (root, first) = (setup.roots[screen].root, setup.min_keycode);
        let map = connection.get_keyboard_mapping(first, setup.max_keycode - first + 1)?.reply()?;
        let width = usize::from(map.keysyms_per_keycode);
        let row = |(n, row): (usize, &[u32])| [(row[0], first + n as u8, false), (row[1], first + n as u8, true)];
        let keys = map.keysyms.chunks(width).enumerate().flat_map(row).collect();
        Ok(Screen { connection, atoms, root, keys })
    }

    /// Windows on the screen, each with its title, the topmost last.
    pub fn windows(&self) -> Answer<Vec<(Window, String)>> {
        let mut seen = Vec::new();
        for window in self.connection.query_tree(self.root)?.reply()?.children {
            // One that went in this moment is none.
            let Ok(attributes) = self.connection.get_window_attributes(window)?.reply() else { continue };
            if attributes.map_state != MapState::VIEWABLE {
                continue;
            }
            for (property, kind) in
                [(self.atoms._NET_WM_NAME, AtomEnum::ANY), (AtomEnum::WM_NAME.into(), AtomEnum::ANY)]
            {
                let Ok(title) = self.connection.get_property(false, window, property, kind, 0, 256)?.reply() else {
                    continue;
                };
                if title.value_len > 0 {
                    seen.push((window, String::from_utf8_lossy(&title.value).into_owned()));
                    break;
                }
            }
        }
        Ok(seen)
    }

    /// The window whose title begins so, once it is there.
    pub fn window(&self, title: &str) -> Window {
        let begun = Instant::now();
        loop {
            let windows = self.windows().unwrap();
            if let Some((window, _)) = windows.iter().rev().find(|(_, of)| of.starts_with(title)) {
                return *window;
            }
            assert!(begun.elapsed() < super::desk::PATIENCE, "no window is called {title}: {windows:?}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until no window's title begins so.
    pub fn until_gone(&self, title: &str) {
        let there = || self.windows().unwrap().iter().any(|(_, of)| of.starts_with(title));
        assert!(crate::journeys::lab::until(super::desk::PATIENCE, || !there()), "{title} is still open");
    }

    /// Gives a window the keyboard.
    pub fn focus(&self, window: Window) {
        self.connection.set_input_focus(InputFocus::PARENT, window, x11rb::CURRENT_TIME).unwrap();
        self.settle();
    }

    /// Puts a window's corner there.
    pub fn place(&self, window: Window, x: i32, y: i32) {
        self.connection.configure_window(window, &ConfigureWindowAux::new().x(x).y(y)).unwrap();
        self.settle();
    }

    /// Colours what lies behind all windows.
    pub fn paper(&self, colour: u32) {
        let colour = ChangeWindowAttributesAux::new().background_pixel(colour);
        self.connection.change_window_attributes(self.root, &colour).unwrap();
        self.connection.clear_area(false, self.root, 0, 0, 0, 0).unwrap();
        self.settle();
    }

    /// Presses keys at once: "Return", "Control+Return", "n", "?".
    pub fn press(&self, keys: &str) {
        let mut held: Vec<u8> = Vec::new();
        for key in keys.split('+') {
            let (code, shifted) = self.code(key);
            if shifted {
                held.push(self.code("Shift").0);
            }
            held.push(code);
        }
        held.iter().for_each(|code| self.fake(KEY_PRESS_EVENT, *code));
        held.iter().rev().for_each(|code| self.fake(KEY_RELEASE_EVENT, *code));
        self.settle();
    }

    /// Writes a text.
    pub fn write(&self, text: &str) {
        for letter in text.chars() {
            self.press(&letter.to_string());
            // As fast as a person at most: completion looks at what was written.
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Chooses a path in the file dialog of this title: "/" opens its field, Enter takes what was written.
    pub fn choose(&self, title: &str, path: &Path) {
        let (window, path) = (self.window(title), path.to_str().unwrap());
        self.focus(window);
        self.press("/");
        for _ in 0..5 {
            // The field takes a moment to open, and then fills in what it knows.
            std::thread::sleep(Duration::from_millis(600));
            self.press("Control+a");
            self.write(path);
            std::thread::sleep(Duration::from_millis(200));
            self.press("Return");
            let open = || self.windows().unwrap().iter().any(|(_, of)| of.starts_with(title));
            if crate::journeys::lab::until(Duration::from_secs(6), || !open()) {
                return;
            }
        }
        panic!("{title} does not take {path}");
    }

    fn code(&self, key: &str) -> (u8, bool) {
        let named = NAMED.iter().find(|(name, _)| *name == key).map(|(_, symbol)| *symbol);
        // Symbols of ASCII are their letters.
        let symbol = named.unwrap_or_else(|| key.chars().next().map_or(0, u32::from));
        let found = self.keys.iter().find(|(of, _, _)| *of == symbol);
        let (_, code, shifted) = found.unwrap_or_else(|| panic!("no key writes {key}"));
        (*code, *shifted)
    }

    fn fake(&self, kind: u8, code: u8) {
        self.connection.xtest_fake_input(kind, code, 0, self.root, 0, 0, 0).unwrap();
    }

    fn settle(&self) {
        self.connection.get_input_focus().unwrap().reply().unwrap();
    }

    /// Asks a window to close, as the cross in its frame does.
    pub fn ask_to_close(&self, window: Window) {
        let words = [self.atoms.WM_DELETE_WINDOW, x11rb::CURRENT_TIME, 0, 0, 0];
        let message = ClientMessageEvent::new(32, window, self.atoms.WM_PROTOCOLS, words);
        self.connection.send_event(false, window, EventMask::NO_EVENT, message).unwrap();
        self.settle();
    }

    /// The text that was copied last.
    pub fn copied(&self) -> Answer<String> {
        let asker = self.connection.generate_id()?;
        let plain = CreateWindowAux::new();
        self.connection.create_window(0, asker, self.root, 0, 0, 1, 1, 0, WindowClass::INPUT_ONLY, 0, &plain)?;
        let (clipboard, text, place) = (self.atoms.CLIPBOARD, self.atoms.UTF8_STRING, self.atoms.PASTE);
        self.connection.convert_selection(asker, clipboard, text, place, x11rb::CURRENT_TIME)?;
        self.connection.flush()?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            match self.connection.poll_for_event()? {
                Some(Event::SelectionNotify(_)) => {
                    let kept = self.connection.get_property(true, asker, place, AtomEnum::ANY, 0, 1 << 20)?.reply()?;
                    return Ok(String::from_utf8_lossy(&kept.value).into_owned());
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err("nobody has copied anything".into())
    }

    /// All that is on the screen.
    pub fn picture(&self) -> Answer<Frame> {
        let size = self.connection.get_geometry(self.root)?.reply()?;
        let (width, height) = (size.width, size.height);
        let image = self.connection.get_image(ImageFormat::Z_PIXMAP, self.root, 0, 0, width, height, !0)?.reply()?;
        let rgb = image.data.as_chunks::<4>().0.iter().flat_map(|[b, g, r, _]| [*r, *g, *b]).collect();
        Ok(Frame { width: usize::from(width), height: usize::from(height), rgb })
    }
}
