//! Pages that need no other file: how each begins, and text in them.

use std::fmt::Write;

/// The rules that all pages share.
const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1rem; color: #111; background: #fff; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { border-top: 2px solid #111; padding-top: .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #ccc; }
pre { font-size: .75rem; line-height: 1.35; overflow-x: auto; background: #f6f6f6; padding: .6rem; margin: .3rem 0; }
";

/// The beginning of a page, up to its heading; `title` is plain text, `style` what this page adds to the common rules.
pub fn begin(title: &str, style: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width, initial-scale=1'>\
         <title>{title}</title><style>{STYLE}{style}</style>\n"
    )
}

/// Plain text as text of a page, also inside of an attribute in single quotes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

/// Appends a line.
pub fn put(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes all text");
}
