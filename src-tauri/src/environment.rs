//! What the environment says, and what is set in it before the window opens.

/// Corrects the environment. Call it first, while there is one thread.
///
/// # Safety
/// No other thread may run.
pub unsafe fn correct() {
    let there = |path: &str| std::path::Path::new(path).exists();
    if there("/proc/driver/nvidia") {
        // Blank windows on this driver otherwise.
        // SAFETY: the caller vouches for a single thread.
        unsafe { set_where_open("WEBKIT_DISABLE_DMABUF_RENDERER") };
    }
    if !there("/dev/dri") {
        // Without a graphics device layers would be joined by a rasteriser in software: half a second more until the first
        // paint, and slower ones after it.
        // SAFETY: as above.
        unsafe { set_where_open("WEBKIT_DISABLE_COMPOSITING_MODE") };
    }
    if !cfg!(debug_assertions) {
        // Else any program that can set a variable could drive the window of a shipped build.
        // SAFETY: as above.
        unsafe { std::env::remove_var("TAURI_WEBVIEW_AUTOMATION") };
    }
}

/// Switches something on unless the user has said otherwise.
///
/// # Safety
/// No other thread may run.
unsafe fn set_where_open(name: &str) {
    if std::env::var_os(name).is_none() {
        // SAFETY: the caller vouches for a single thread.
        unsafe { std::env::set_var(name, "1") };
    }
}

/// Language of the session: "zh" or "en".
pub fn locale() -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    language(set("LC_ALL").or_else(|| set("LC_MESSAGES")).or_else(|| set("LANG")).as_deref()).to_owned()
}

fn language(locale: Option<&str>) -> &'static str {
    if locale.is_some_and(|l| l.starts_with("zh")) { "zh" } else { "en" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_language_is_english() {
        let all = [Some("zh_CN.UTF-8"), Some("C"), Some("de_DE.UTF-8"), None].map(language);
        assert_eq!(all, ["zh", "en", "en", "en"]);
    }
}
