"""Shows a debugger the paused contexts of giveway-preempt.

A worker thread has a context for each level of urgency. Only one of them runs. The
others lie on stacks that the worker has left, which no thread shows. In a running
process or a core dump:

    (gdb) source giveway_preempt.py
    (gdb) giveway-contexts
    (gdb) giveway-context 0
    (gdb) backtrace
    (gdb) giveway-context off

`giveway-contexts` lists all contexts of all workers. `giveway-context LEVEL` shows a
paused context of the selected thread, which must be a worker: from then on the frames
below the innermost function are those of the context, in every command about frames,
until `giveway-context off` or until the program goes on. Nothing of the process is
changed.

The list of workers is in the crate, in src/debugger.rs, with the layout that is read
here. It needs neither symbols nor debug information.

Known weaknesses: thread-locals that gdb prints are those of the context that runs.
Frames are shown on x86-64 only.
"""

import re

import gdb
import gdb.unwinder

# Of src/debugger.rs: one list or more in a section.
VERSION = 1
SECTION = "giveway_workers"
LIST_BYTES = 16

# Of src/trail.rs: in place of the instruction at which a context was stopped.
NOT_STOPPED = 0
BY_ITSELF = 1

# Of src/arch/x86_64.rs: what lies above a saved stack pointer, by its offset.
PUSHED = {"r15": 0x08, "r14": 0x10, "r13": 0x18, "r12": 0x20, "rbx": 0x28, "rbp": 0x30}
RETURN = 0x38
FRAME_BYTES = 0x40


def word(address):
    """The word at an address."""
    return int.from_bytes(gdb.selected_inferior().read_memory(address, 8), "little")


class Worker:
    """An entry of the list."""

    def __init__(self, address):
        self.next, self.thread, self.levels, trail = (word(address + 8 * i) for i in range(4))
        self.running = word(trail)
        self.stopped = [word(trail + 8 * (1 + level)) for level in range(self.levels)]
        self.saved = [word(address + 8 * (4 + level)) for level in range(self.levels)]

    def state(self, level):
        """What a level's context does, in a word, and where."""
        if level == self.running:
            return "running", ""
        stopped = self.stopped[level]
        if stopped == NOT_STOPPED:
            return "idle", ""
        if stopped == BY_ITSELF:
            return "paused", "at a poll point, a region's exit or in a yield"
        return "paused", gdb.execute(f"output/a {stopped}", to_string=True)

    def stack_pointer(self, level):
        """Where the registers of a context that does not run lie."""
        return word(self.saved[level])


def lists():
    """Where the lists of workers are: in the program, in libraries."""
    sections = gdb.execute("info files", to_string=True)
    row = re.compile(rf"^\s*(0x[0-9a-f]+) - (0x[0-9a-f]+) is {SECTION}\b", re.MULTILINE)
    for start, end in row.findall(sections):
        yield from range(int(start, 16), int(end, 16), LIST_BYTES)


def workers():
    """All workers, in each list the oldest first."""
    entries = []
    for at in lists():
        found = word(at)
        if found != VERSION:
            raise gdb.GdbError(
                f"the program has version {found} of the list of workers and this script reads"
                f" version {VERSION}: take the script from the crate that the program was built"
                " with"
            )
        at, entries_here = word(at + 8), []
        while at:
            entries_here.append(Worker(at))
            at = entries_here[-1].next
        entries += reversed(entries_here)
    return entries


class ListContexts(gdb.Command):
    """List the contexts of all workers of giveway-preempt: giveway-contexts"""

    def __init__(self):
        super().__init__("giveway-contexts", gdb.COMMAND_STACK)

    def invoke(self, _argument, _from_tty):
        numbers = {thread.ptid[1]: thread.num for thread in gdb.selected_inferior().threads()}
        found = workers()
        if not found:
            print("no thread is a worker of giveway-preempt, or no program that has them is loaded")
            return
        print("thread  level  state    where")
        for worker in found:
            thread = numbers.get(worker.thread, "-")
            for level in range(worker.levels):
                state, where = worker.state(level)
                print(f"{thread:>6}  {level:>5}  {state:<7}  {where}".rstrip())


class FrameId:
    """A frame's identity: its stack address and its instruction."""

    def __init__(self, sp, pc):
        self.sp = sp
        self.pc = pc


class Shown(gdb.unwinder.Unwinder):
    """Puts the frames of a paused context below the innermost function of its worker."""

    def __init__(self):
        super().__init__("giveway-context")
        self.innermost = None
        self.stack_pointer = None

    def show(self, stack_pointer):
        """From now on, in the selected thread; returns the number of the first frame."""
        self.hide()
        frame = gdb.newest_frame()
        self.innermost = [int(frame.read_register(name)) for name in ("rip", "rsp")]
        self.stack_pointer = stack_pointer
        gdb.invalidate_cached_frames()
        frame = gdb.newest_frame()
        while frame.type() == gdb.INLINE_FRAME:
            frame = frame.older()
        return frame.level() + 1

    def hide(self):
        """From now on."""
        self.innermost = None
        gdb.invalidate_cached_frames()

    def __call__(self, pending):
        if self.innermost is None:
            return None
        if [int(pending.read_register(name)) for name in ("rip", "rsp")] != self.innermost:
            return None
        # As if the innermost function were on the context's stack, above what follows: a
        # debugger takes a stack that does not grow for a broken one.
        at = self.stack_pointer
        word_type = pending.architecture().integer_type(64, False)
        info = pending.create_unwind_info(
            FrameId(gdb.Value(at).cast(word_type), pending.read_register("rip"))
        )
        saved = {register: word(at + offset) for register, offset in PUSHED.items()}
        saved.update(rip=word(at + RETURN), rsp=at + FRAME_BYTES)
        for register, value in saved.items():
            info.add_saved_register(register, gdb.Value(value).cast(word_type))
        return info


class ShowContext(gdb.Command):
    """Show the frames of a paused context of the selected thread: giveway-context LEVEL

    The innermost function stays what the thread runs; the frames below it are the
    context's, in every command about frames, until `giveway-context off` or until the
    program goes on.
    """

    def __init__(self, shown):
        super().__init__("giveway-context", gdb.COMMAND_STACK)
        self.shown = shown
        gdb.events.cont.connect(lambda _event: shown.hide())

    def invoke(self, argument, _from_tty):
        if argument == "off":
            self.shown.hide()
            return
        if not argument.isdigit():
            raise gdb.GdbError("write giveway-context LEVEL, a number, or giveway-context off")
        level, selected = int(argument), gdb.selected_thread()
        if selected is None:
            raise gdb.GdbError("no thread is selected: attach to a process or load a core dump")
        architecture = gdb.selected_inferior().architecture().name()
        if architecture != "i386:x86-64":
            raise gdb.GdbError(f"frames are shown on x86-64 only, not on {architecture}")
        thread = selected.ptid[1]
        worker = next((worker for worker in workers() if worker.thread == thread), None)
        if worker is None:
            raise gdb.GdbError(
                "the selected thread is no worker: giveway-contexts names those that are"
            )
        if level >= worker.levels:
            raise gdb.GdbError(f"the worker has the levels 0 to {worker.levels - 1}")
        if level == worker.running:
            raise gdb.GdbError(
                f"level {level} is the one that runs: giveway-context off, then backtrace"
            )
        first = self.shown.show(worker.stack_pointer(level))
        print(f"the frames from #{first} on are those of level {level}")


SHOWN = Shown()
gdb.unwinder.register_unwinder(None, SHOWN, replace=True)
ListContexts()
ShowContext(SHOWN)
