//! What the environment says, and what is set in it before the window opens.

/// Corrects the environment. Call it first, while there is one thread.
///
/// # Safety
/// No other thread may run.
pub unsafe fn correct() {
    let nvidia = std::path::Path::new("/proc/driver/nvidia").exists();
    if nvidia && std::env::var_os("WEBKIT_DISABLE_DMABUF_RENDERER").is_none() {
        // Blank windows on this driver otherwise.
        // SAFETY: the caller vouches for a single thread.
        unsafe { std::env::set_var("WEBKIT_DISABLE_DMABUF_RENDERER", "1") };
    }
    if !cfg!(debug_assertions) {
        // Else any program that can set a variable could drive the window of a shipped build.
        // SAFETY: as above.
        unsafe { std::env::remove_var("TAURI_WEBVIEW_AUTOMATION") };
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
