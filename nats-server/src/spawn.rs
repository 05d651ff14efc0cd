//! Starting a process that does not outlive this one.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel ends a child with the *thread* that started it, not with the process: a test's own
/// thread, or a worker of a runtime, may end long before the program does. This one lasts.
static SPAWNER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (mut command, answer) in queue {
            // nobody waits for the answer any more: the child is dropped, and runs until we end
            let _ = answer.send(command.spawn());
        }
    });
    jobs
});

/// A command that the kernel kills when this process ends, also when that is by SIGKILL: `setpriv`
/// of util-linux asks for it and then becomes the program. Where there is no `setpriv`, an ordinary
/// command, which a SIGKILL of this process leaves behind.
pub(crate) fn command(program: &Path) -> Command {
    let Some(setpriv) = setpriv() else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn setpriv() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/bin".into(), "/bin".into()])
        .map(|dir| dir.join("setpriv"))
        .find(|file| file.is_file())
}

/// Starts the command on the thread that lasts.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (answer, receive) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    SPAWNER.send((command, answer)).map_err(|_| gone())?;
    receive.recv().map_err(|_| gone())?
}
