//! Where programs keep their models: what the environment says, and from it each program's folders.
//!
//! Not here: what lies in them.

use super::walk;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Longest file that names LM Studio's folder, in bytes: one path.
const POINTER_BYTES: u64 = 4096;

/// What of the environment decides where models are looked for.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The user's home (`$HOME`).
    pub home: Option<PathBuf>,
    /// `$HF_HUB_CACHE`.
    pub hf_hub_cache: Option<PathBuf>,
    /// `$HF_HOME`.
    pub hf_home: Option<PathBuf>,
    /// `$XDG_CACHE_HOME`.
    pub xdg_cache_home: Option<PathBuf>,
    /// `$OLLAMA_MODELS`.
    pub ollama_models: Option<PathBuf>,
    /// Folders where Ollama as a service of the system keeps models.
    pub ollama_system: Vec<PathBuf>,
}

impl Surroundings {
    /// Those of this process. Relative and empty values count as not given.
    pub fn of_process() -> Surroundings {
        let home = given(None, std::env::var_os("HOME"));
        let variable = |name: &str| given(home.as_deref(), std::env::var_os(name));
        Surroundings {
            hf_hub_cache: variable("HF_HUB_CACHE"),
            hf_home: variable("HF_HOME"),
            xdg_cache_home: variable("XDG_CACHE_HOME"),
            ollama_models: variable("OLLAMA_MODELS"),
            ollama_system: ["/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models"]
                .map(PathBuf::from)
                .to_vec(),
            home,
        }
    }

    fn in_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }

    /// The cache of Hugging Face's libraries, as their documentation orders the variables.
    pub fn hugging_face(&self) -> Option<PathBuf> {
        let cache = || self.xdg_cache_home.clone().or_else(|| self.in_home(".cache"));
        self.hf_hub_cache
            .clone()
            .or_else(|| self.hf_home.as_ref().map(|home| home.join("hub")))
            .or_else(|| cache().map(|cache| cache.join("huggingface/hub")))
    }

    /// LM Studio's folders of today, of its first versions, and the one that the user chose in it.
    pub fn lm_studio(&self) -> Vec<PathBuf> {
        let usual = [".lmstudio/models", ".cache/lm-studio/models"].map(|path| self.in_home(path));
        let pointer = self.in_home(".lmstudio-home-pointer").and_then(|file| walk::small_text(&file, POINTER_BYTES));
        let chosen = pointer.map(|text| PathBuf::from(text.trim())).filter(|path| path.is_absolute());
        usual.into_iter().flatten().chain(chosen.map(|home| home.join("models"))).collect()
    }

    /// Ollama's folders: the one that was set, the user's, the system's.
    pub fn ollama(&self) -> Vec<PathBuf> {
        let own = self.in_home(".ollama/models");
        self.ollama_models.iter().cloned().chain(own).chain(self.ollama_system.iter().cloned()).collect()
    }
}

/// A value that names a place. Shells leave "~" in quotes as it is, and these programs read it as the user's home.
fn given(home: Option<&Path>, value: Option<OsString>) -> Option<PathBuf> {
    let path = PathBuf::from(value?);
    let path = match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    };
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_says_where_the_cache_is() {
        let path = |text: &str| Some(PathBuf::from(text));
        let mut here = Surroundings::default();
        assert_eq!(here.hugging_face(), None);
        here.home = path("/u");
        assert_eq!(here.hugging_face(), path("/u/.cache/huggingface/hub"));
        here.xdg_cache_home = path("/c");
        assert_eq!(here.hugging_face(), path("/c/huggingface/hub"));
        here.hf_home = path("/hf");
        assert_eq!(here.hugging_face(), path("/hf/hub"));
        here.hf_hub_cache = path("/hub");
        assert_eq!(here.hugging_face(), path("/hub"));
    }

    #[test]
    fn empty_and_relative_values_name_no_place() {
        let home = Path::new("/u");
        assert_eq!(given(Some(home), Some("".into())), None);
        assert_eq!(given(Some(home), Some("hub".into())), None);
        assert_eq!(given(Some(home), Some("~/hub".into())), Some("/u/hub".into()));
        assert_eq!(given(None, Some("~/hub".into())), None);
    }

    #[test]
    fn the_pointer_of_lm_studio_is_followed_only_to_a_place() {
        let home = tempfile::tempdir().unwrap();
        let here = Surroundings { home: Some(home.path().to_owned()), ..Surroundings::default() };
        assert_eq!(here.lm_studio().len(), 2);
        let file = home.path().join(".lmstudio-home-pointer");
        for (text, more) in [("/big/lm\n", 1), ("relative", 0), ("", 0), (&"/x".repeat(5000), 0)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(here.lm_studio().len(), 2 + more, "{}", text.len());
        }
        std::fs::write(&file, b"/\xff\xfe").unwrap();
        assert_eq!(here.lm_studio().len(), 2);
    }
}
