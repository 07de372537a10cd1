//! How the shared object is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Named by the version of its binary interface: `FL_VERSION_MAJOR` of `flashloom.h`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libflashloom.so.0");
    // Functions that crates below offer to C are not part of it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
