//! What `protoc` does for a build script that wants descriptors: `-I DIR… -o FILE --include_imports PROTO…`.

use std::error::Error;
use std::path::PathBuf;

use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut folders, mut protos, mut output) = (Vec::new(), Vec::new(), None);
    let (mut imports, mut source_info) = (false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-I" => folders.push(arguments.next().ok_or("-I needs a folder")?),
            "-o" => output = Some(PathBuf::from(arguments.next().ok_or("-o needs a file")?)),
            "--include_imports" => imports = true,
            "--include_source_info" => source_info = true,
            flag if flag.starts_with('-') => {
                return Err(format!("{flag} is not understood; this is not the real protoc").into());
            }
            proto => protos.push(proto.to_owned()),
        }
    }
    let mut compiler = Compiler::new(folders)?;
    compiler.include_imports(imports).include_source_info(source_info).open_files(protos)?;
    std::fs::write(output.ok_or("-o FILE is missing")?, compiler.encode_file_descriptor_set())?;
    Ok(())
}
