//! What the machine says of the drives behind paths, and how they are: `drive PATH...`. To look at real hardware.

use hardware::Machine;
use std::path::Path;

fn main() {
    let machine = Machine::new();
    for path in std::env::args().skip(1) {
        match machine.drive(Path::new(&path)) {
            Ok(Some(drive)) => {
                println!("{path}: {drive:#?}");
                println!("temperature: {:?}", machine.temperature(&drive));
                match machine.health(&drive) {
                    Ok(health) => println!("{health:#?}"),
                    Err(error) => println!("{error}"),
                }
                println!("located: {:?}", machine.is_located(&drive));
            }
            Ok(None) => println!("{path}: no drive"),
            Err(error) => println!("{error}"),
        }
    }
}
