//! Two hundred texts that become code, requests or elements wherever a page takes them for anything but text.
//!
//! Not here: where they are stored and what the page must not do with them (`markup`).

/// Each in every dress. `RUN` would set the flag, `ASK` would be seen by the listener.
const BARE: [&str; 50] = [
    "<script>RUN</script>",
    "<script src=ASK></script>",
    "<script type=module>RUN</script>",
    "<scr<script>ipt>RUN</scr</script>ipt>",
    "<ScRiPt>RUN</sCrIpT>",
    "<img src=x onerror=RUN>",
    "<img src=ASK>",
    "<img src=\"x\" onerror=\"RUN\" style=display:none>",
    "<IMG SRC=\"data:image/svg+xml,<svg onload=RUN>\">",
    "<svg onload=RUN>",
    "<svg><script>RUN</script></svg>",
    "<svg><animate onbegin=RUN attributeName=x dur=1s>",
    "<svg><a xlink:href=\"javascript:RUN\"><text>x</text></a></svg>",
    "<svg><use href=\"ASK#x\">",
    "<svg><foreignObject><iframe src=javascript:RUN></iframe></foreignObject></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=RUN>",
    "<math href=\"javascript:RUN\">x</math>",
    "<iframe src=\"javascript:RUN\"></iframe>",
    "<iframe srcdoc=\"<script>parent.RUN</script>\"></iframe>",
    "<iframe src=ASK></iframe>",
    "<object data=\"ASK\"></object>",
    "<embed src=\"ASK\">",
    "<video src=ASK autoplay onerror=RUN>",
    "<audio src=x onerror=RUN>",
    "<details open ontoggle=RUN>x</details>",
    "<input autofocus onfocus=RUN>",
    "<body onload=RUN>",
    "<marquee onstart=RUN>x</marquee>",
    "<a href=\"javascript:RUN\">click</a>",
    "<a href=\"data:text/html,<script>RUN</script>\">click</a>",
    "<form action=ASK><button formaction=javascript:RUN>x</button></form>",
    "<meta http-equiv=refresh content=\"0;url=ASK\">",
    "<meta http-equiv=refresh content=\"0;url=javascript:RUN\">",
    "<base href=ASK>",
    "<link rel=stylesheet href=ASK>",
    "<link rel=preload as=fetch href=ASK>",
    "<style>@import 'ASK'; body{background:url(ASK)}</style>",
    "<div style=\"background:url(ASK);position:fixed;inset:0\">x</div>",
    "<template><script>RUN</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=RUN>\">",
    "{{RUN}} ${RUN} #{RUN} <%= RUN %>",
    "{@html '<img src=x onerror=RUN>'} {#if true}RUN{/if}",
    "{{constructor.constructor('RUN')()}} __proto__",
    "&lt;img src=x onerror=RUN&gt; &#60;script&#62;RUN&#60;/script&#62; &#x3c;svg onload=RUN&#x3e;",
    "javascript:RUN//",
    "data:text/html;base64,PHNjcmlwdD53aW5kb3cucmFuPTE8L3NjcmlwdD4=",
    "\u{202e}gnp.ecnis\u{202c} \u{2066}<b>RUN</b>\u{2069} \u{200f}",
    "ze\u{200b}ro\u{200d} wi\u{2060}dth\u{feff} <b onclick=RUN>x</b>",
    "\u{1b}[31mred\u{1b}]8;;ASK\u{7}link\u{1b}]8;;\u{7} \u{8}\u{8}\u{c}\u{7f}\u{9b}0m",
    "a\u{0}b<\u{0}script>RUN</script> +ADw-script+AD4-RUN+ADw-/script+AD4-",
];

/// What comes before each: out of an attribute, out of an element whose text is not markup.
const DRESSES: [&str; 4] = ["", "\">", "'>", "</title></textarea></style></script>-->"];

/// All of them; number n ends in " n{n}z", which tells that it was shown. `ask` is the listener's address.
pub fn all(ask: &str) -> Vec<String> {
    let dressed = DRESSES.iter().flat_map(|dress| BARE.iter().map(move |bare| format!("{dress}{bare}")));
    let real = |text: String| text.replace("RUN", "window.ran=1").replace("ASK", ask);
    dressed.enumerate().map(|(n, text)| format!("{} n{n}z", real(text))).collect()
}

/// As a name in a folder: a name has no slash and no zero, and ends somewhere.
pub fn file_name(payload: &str) -> String {
    let name: String = payload.chars().map(|c| if matches!(c, '/' | '\0') { '|' } else { c }).collect();
    let (text, number) = name.rsplit_once(' ').unwrap_or(("", &name));
    let mut text = text.to_owned();
    while text.len() > 180 {
        text.pop();
    }
    format!("{text} {number}")
}

/// As a name of a job, which has no control characters besides.
pub fn job_name(payload: &str) -> String {
    file_name(payload).chars().map(|c| if c.is_control() { '|' } else { c }).collect()
}
