//! Generates the wire types, and the config service around a codec of its own.

use std::io::Result;
use std::path::PathBuf;

fn main() -> Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    tonic_prost_build::configure()
        .bytes(".headwater.config.v1")
        .file_descriptor_set_path(out.join("admin_descriptor.bin"))
        .compile_protos(
            &["proto/headwater/config/v1/config.proto", "proto/headwater/admin/v1/admin.proto"],
            &["proto"],
        )?;
    let sync = tonic_build::manual::Method::builder()
        .name("sync")
        .route_name("Sync")
        .input_type("crate::frame::Frame")
        .output_type("crate::frame::Frame")
        .codec_path("crate::frame::FrameCodec")
        .client_streaming()
        .server_streaming()
        .build();
    let service = tonic_build::manual::Service::builder()
        .name("Config")
        .package("headwater.config.v1")
        .comment("The second hop: one stream per node.")
        .method(sync)
        .build();
    tonic_build::manual::Builder::new().compile(&[service]);
    Ok(())
}
