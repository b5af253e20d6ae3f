//! `{% generation %}` … `{% endgeneration %}`: the engine does not know these tags, so they become a filter block whose
//! filter puts marks around what it gets. A filter block strips white space exactly as the tags would.

/// Name of the filter; no template has a filter of this name by accident.
pub(super) const FILTER: &str = "anneal_generation";

/// Replaces the tags outside comments and raw blocks; true when there was one.
pub(super) fn rewrite(source: &str) -> (String, bool) {
    let mut out = String::with_capacity(source.len());
    let (mut rest, mut found, mut raw) = (source, false, false);
    while let Some(at) = opening(rest, raw) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let comment = rest.starts_with("{#");
        let Some(end) = rest[2..].find(if comment { "#}" } else { "%}" }) else { break };
        let (tag, behind) = rest.split_at(end + 4);
        rest = behind;
        match word(tag) {
            "raw" if !comment => raw = true,
            "endraw" if !comment => raw = false,
            "generation" if !comment && !raw => {
                found = true;
                out.push_str(&tag.replacen("generation", &format!("filter {FILTER}"), 1));
                continue;
            }
            "endgeneration" if !comment && !raw => {
                out.push_str(&tag.replacen("endgeneration", "endfilter", 1));
                continue;
            }
            _ => {}
        }
        out.push_str(tag);
    }
    out.push_str(rest);
    (out, found)
}

/// Where the next tag or comment begins; inside a raw block there are no comments.
fn opening(text: &str, raw: bool) -> Option<usize> {
    text.as_bytes().windows(2).position(|w| w == b"{%" || (w == b"{#" && !raw))
}

/// The one word of a tag that has nothing else.
fn word(tag: &str) -> &str {
    let inner = &tag[2..tag.len() - 2];
    inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_replaced() {
        let (text, found) = rewrite("a{%- generation +%}b{% endgeneration%}{# {% generation %} #}{{ generation }}");
        assert!(found);
        assert_eq!(text, "a{%- filter anneal_generation +%}b{% endfilter%}{# {% generation %} #}{{ generation }}");
        assert_eq!(rewrite("{%}{#}"), ("{%}{#}".to_owned(), false));
        let raw = "{% raw %}{% generation %}{% endraw %}{% if x %}{% unclosed";
        assert_eq!(rewrite(raw), (raw.to_owned(), false));
    }
}
