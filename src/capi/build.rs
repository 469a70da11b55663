//! Gives the shared library the name by which programs find it: `make install` installs it under that name.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtilewright.so.1");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
