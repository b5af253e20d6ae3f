//! Journeys in the real window: the program as it is shipped, on a display of its own, driven as a person would.
//!
//! Not here: journeys on the command line (`journeys`), the page's own tests (`ui`). Without Xvfb and WebKitWebDriver these
//! tests say that they are left out.

mod calls;
mod desk;
mod guard;
mod markup;
mod payloads;
mod places;
mod real;
mod single;
mod speed;
mod windows;
mod wm;
mod xdnd;
