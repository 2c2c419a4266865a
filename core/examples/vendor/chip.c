// An example chip: a vendor of devices over flagos_vendor.h. Its kernels, over flagos_kernels.h, are in kernels.c.
//
// A device is simulated. Its memory has two views: the addresses that the host knows cannot be accessed by it
// (PROT_NONE), so that host code which takes device memory for its own faults at once, and the chip's own view, through
// which copies and kernels go. Each stream is a thread that runs a queue. Work that uses memory outside what is
// allocated loses the device, as an illegal address does on a real one.
//
// One lock guards everything, because an example is read more often than it is run. Read from the end: the table, then
// the functions in it.

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "chip.h"

enum { MAX_DEVICES = 16, ALIGNMENT = 4096, MAX_CAPTURED_STREAMS = 64 };

// ------------------------------------------------------------------------------------------------ types

// A range of device memory that is allocated: offsets from the beginning. Sorted.
typedef struct Range {
  size_t start, end;
  struct Range* next;
} Range;

typedef struct Device {
  int32_t index;
  char* address; // what the host knows: PROT_NONE
  char* view;    // what the chip uses
  size_t total, used;
  Range* ranges;
  bool lost;
  char failure[CHIP_FAILURE]; // of a stream that is gone, and has not been reported
  struct FlagosVendorStream* default_stream;
  struct FlagosVendorStream* streams; // also those that are destroyed and still have work
  struct FlagosVendorGraph* captures; // that go on
} Device;

// Pinned memory, which the chip copies from and to at any time.
typedef struct Pinned {
  char* address;
  size_t nbytes;
  struct Pinned* next;
} Pinned;

struct FlagosVendorInstance {
  Device devices[MAX_DEVICES];
  int32_t device_count;
  size_t streams; // over all devices; the last one to go after `closed` frees the instance
  Pinned* pinned;
  uint64_t captures; // so far
  bool closed;
  pthread_mutex_t lock;
  pthread_cond_t progress; // some item has finished
};
typedef struct FlagosVendorInstance Chip;

// A place in a stream that an event stands for, shared by the event, the stream and those that wait.
typedef struct Mark {
  int references;
  bool reached;
  bool lost;                  // the device was, before
  char failure[CHIP_FAILURE]; // of work before, not reported by then
  struct timespec time;
  uint64_t capture; // the number of the capture in which it was recorded; 0 for none
  uint64_t covered; // of a captured mark: the streams of the capture whose work is before it, a bit each
  uint64_t sequence;
} Mark;

struct FlagosVendorEvent {
  Chip* chip;
  bool timing;
  Mark* mark; // NULL before the first record
};

typedef struct Item {
  enum { COPY, KERNEL, HOST_FUNCTION, REACH, WAIT, GRAPH } kind;
  void *to, *from;
  size_t nbytes;
  ChipWork* kernel;
  FlagosVendorHostFunction function;
  void* context;
  Mark* mark;
  struct FlagosVendorGraph* graph;
  struct Item* next;
} Item;

// Captured work, in the order in which it was queued: that is one of the orders that its streams and events allow.
struct FlagosVendorGraph {
  Chip* chip;
  Device* device;
  Item *first, **last;
  uint64_t number;
  uint64_t sequence;                                        // of the last thing that was captured
  struct FlagosVendorStream* streams[MAX_CAPTURED_STREAMS]; // during the capture; it began on the first one
  int stream_count;
  int references; // the user's, and those of runs that are queued
  bool running;
  struct FlagosVendorGraph* next; // of the captures that go on
};
typedef struct FlagosVendorGraph Graph;

struct FlagosVendorStream {
  Chip* chip;
  Device* device;
  Item *first, **last;
  uint64_t queued, finished;
  bool has_thread, destroyed;
  char failure[CHIP_FAILURE]; // the first one that has not been reported
  pthread_cond_t work;        // an item was queued, or the stream destroyed
  Graph* capture;             // that the stream belongs to
  int place;                  // there
  uint64_t covered;           // the streams of the capture whose work comes before what is captured next here
  uint64_t sequence;          // of the last work captured here
  struct FlagosVendorStream* next;
};
typedef struct FlagosVendorStream Stream;

// ------------------------------------------------------------------------------------------------ errors

static _Thread_local char error_text[256];
static _Thread_local bool in_work;

int32_t chip_fail(int32_t status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  return status;
}

const char* chip_last_error(void) {
  return error_text;
}

static int32_t lost(const Device* device) {
  return chip_fail(FLAGOS_VENDOR_DEVICE_LOST, "CHIP_ILLEGAL_ADDRESS: work left the memory of device %d", device->index);
}

static int32_t outcome(const Device* device) {
  return device->lost ? lost(device) : FLAGOS_VENDOR_OK;
}

// Reports a failure of queued work, if there is one, and forgets it.
static int32_t report(char failure[CHIP_FAILURE]) {
  if (failure[0] == '\0')
    return FLAGOS_VENDOR_OK;
  int32_t status = chip_fail(FLAGOS_VENDOR_DEVICE, "%s", failure);
  failure[0] = '\0';
  return status;
}

// Keeps a failure to be reported, unless one waits already.
static void keep(char failure[CHIP_FAILURE], const char* text) {
  if (failure[0] == '\0')
    snprintf(failure, CHIP_FAILURE, "%s", text);
}

static int32_t refuse_in_work(void) {
  return chip_fail(FLAGOS_VENDOR_UNSUPPORTED, "work running on a stream cannot wait for streams");
}

static int32_t refuse_in_capture(const char* what) {
  return chip_fail(FLAGOS_VENDOR_UNSUPPORTED, "not during a capture: %s", what);
}

// ------------------------------------------------------------------------------------------------ opening

// The whole number in an environment variable, or `standard` where it is not set.
static int32_t setting(const char* name, size_t standard, size_t least, size_t most, size_t* value) {
  const char* text = getenv(name);
  if (text == NULL || *text == '\0') {
    *value = standard;
    return FLAGOS_VENDOR_OK;
  }
  char* end;
  unsigned long long number = strtoull(text, &end, 10);
  if (*end != '\0' || *text < '0' || *text > '9' || number < least || number > most) {
    return chip_fail(FLAGOS_VENDOR_CONFIG, "%s is %.40s: expected a number from %zu to %zu", name, text, least, most);
  }
  *value = (size_t)number;
  return FLAGOS_VENDOR_OK;
}

static int32_t probe(int32_t* device_count) {
  size_t count = 0;
  int32_t status = setting("EXAMPLE_CHIP_DEVICES", 2, 0, MAX_DEVICES, &count);
  if (status == FLAGOS_VENDOR_OK && count == 0) {
    status = chip_fail(FLAGOS_VENDOR_DEVICE, "EXAMPLE_CHIP_DEVICES hides every device");
  }
  if (status == FLAGOS_VENDOR_OK)
    *device_count = (int32_t)count;
  return status;
}

// How far the address lies behind the beginning of the device's memory: `total` or more when it does not lie in it.
static size_t offset(const Device* device, const void* address) {
  return (size_t)((uintptr_t)address - (uintptr_t)device->address);
}

static Stream* new_stream(Chip* chip, Device* device) {
  Stream* stream = calloc(1, sizeof *stream);
  if (stream == NULL)
    return NULL;
  stream->chip = chip;
  stream->device = device;
  stream->last = &stream->first;
  pthread_cond_init(&stream->work, NULL);
  stream->next = device->streams;
  device->streams = stream;
  chip->streams++;
  return stream;
}

// Frees the memory of the devices and the instance, once there is neither a user nor a stream.
static void free_chip(Chip* chip) {
  for (int32_t i = 0; i < chip->device_count; i++) {
    Device* device = &chip->devices[i];
    while (device->ranges != NULL) {
      Range* range = device->ranges;
      device->ranges = range->next;
      free(range);
    }
    if (device->address != NULL)
      munmap(device->address, device->total);
    if (device->view != NULL)
      munmap(device->view, device->total);
  }
  while (chip->pinned != NULL) {
    Pinned* pinned = chip->pinned;
    chip->pinned = pinned->next;
    free(pinned);
  }
  pthread_cond_destroy(&chip->progress);
  pthread_mutex_destroy(&chip->lock);
  free(chip);
}

// Takes a stream without work away. Returns whether it was the last one of a closed instance, to be freed by the caller
// after it has released the lock.
static bool remove_stream(Stream* stream) {
  Chip* chip = stream->chip;
  Stream** link = &stream->device->streams;
  while (*link != stream)
    link = &(*link)->next;
  *link = stream->next;
  keep(stream->device->failure, stream->failure);
  pthread_cond_destroy(&stream->work);
  free(stream);
  return --chip->streams == 0 && chip->closed;
}

// Lets a stream end after its work. Returns as `remove_stream`.
static bool end_stream(Stream* stream) {
  stream->destroyed = true;
  if (!stream->has_thread)
    return remove_stream(stream);
  pthread_cond_signal(&stream->work);
  return false;
}

static void close_chip(Chip* chip) {
  pthread_mutex_lock(&chip->lock);
  chip->closed = true;
  bool over = chip->streams == 0;
  for (int32_t i = 0; i < chip->device_count; i++) {
    Stream* stream = chip->devices[i].default_stream;
    if (stream != NULL)
      over = end_stream(stream);
  }
  pthread_mutex_unlock(&chip->lock);
  if (over)
    free_chip(chip);
}

static int32_t open_chip(const FlagosVendorOptions* options, Chip** instance) {
  (void)options; // the host does not compute on this memory, so that there is nothing to count
  size_t total = 0;
  int32_t count = 0;
  int32_t status = probe(&count);
  if (status != FLAGOS_VENDOR_OK)
    return status;
  status = setting("EXAMPLE_CHIP_MEMORY", (size_t)1 << 30, ALIGNMENT, (size_t)1 << 40, &total);
  if (status != FLAGOS_VENDOR_OK)
    return status;
  total = total / ALIGNMENT * ALIGNMENT;
  Chip* chip = calloc(1, sizeof *chip);
  if (chip == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  pthread_mutex_init(&chip->lock, NULL);
  pthread_cond_init(&chip->progress, NULL);
  for (int32_t i = 0; i < count; i++) {
    Device* device = &chip->devices[i];
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    device->index = i;
    device->total = total;
    chip->device_count = i + 1;
    void* address = mmap(NULL, total, PROT_NONE, flags, -1, 0);
    void* view = mmap(NULL, total, PROT_READ | PROT_WRITE, flags, -1, 0);
    device->address = address == MAP_FAILED ? NULL : address;
    device->view = view == MAP_FAILED ? NULL : view;
    device->default_stream = new_stream(chip, device);
    if (device->address == NULL || device->view == NULL || device->default_stream == NULL) {
      close_chip(chip);
      return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no room for %zu bytes of device memory", total);
    }
  }
  *instance = chip;
  return FLAGOS_VENDOR_OK;
}

// Nothing of the parent's threads exists here, and the lock may be held for ever: there is nothing to do.
static void after_fork_in_child(Chip* chip) {
  (void)chip;
}

static int32_t in_stream_work(Chip* chip) {
  (void)chip;
  return in_work;
}

// ------------------------------------------------------------------------------------------------ devices

static int32_t device_count(Chip* chip, int32_t* count) {
  *count = chip->device_count;
  return FLAGOS_VENDOR_OK;
}

static int32_t device_properties(Chip* chip, int32_t device, FlagosVendorProperties* out) {
  if (FLAGOS_VENDOR_HAS(FlagosVendorProperties, out, name)) {
    snprintf(out->name, sizeof out->name, "Example Chip %d", device);
  }
  if (FLAGOS_VENDOR_HAS(FlagosVendorProperties, out, total_memory))
    out->total_memory = chip->devices[device].total;
  if (FLAGOS_VENDOR_HAS(FlagosVendorProperties, out, multi_processor_count))
    out->multi_processor_count = 1;
  if (FLAGOS_VENDOR_HAS(FlagosVendorProperties, out, major))
    out->major = 1;
  if (FLAGOS_VENDOR_HAS(FlagosVendorProperties, out, minor))
    out->minor = 0;
  return FLAGOS_VENDOR_OK;
}

static int32_t device_memory(Chip* chip, int32_t device, FlagosVendorMemory* out) {
  Device* of = &chip->devices[device];
  pthread_mutex_lock(&chip->lock);
  if (FLAGOS_VENDOR_HAS(FlagosVendorMemory, out, free))
    out->free = of->total - of->used;
  if (FLAGOS_VENDOR_HAS(FlagosVendorMemory, out, total))
    out->total = of->total;
  pthread_mutex_unlock(&chip->lock);
  return FLAGOS_VENDOR_OK;
}

// ------------------------------------------------------------------------------------------------ memory

static int32_t memory_alloc(Chip* chip, int32_t index, size_t nbytes, void** address) {
  Device* device = &chip->devices[index];
  Range* range = malloc(sizeof *range);
  if (range == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  pthread_mutex_lock(&chip->lock);
  int32_t status = outcome(device);
  if (status == FLAGOS_VENDOR_OK && nbytes <= device->total) {
    const size_t size = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    // The first gap that is large enough.
    size_t start = 0;
    Range** link = &device->ranges;
    while (*link != NULL && (*link)->start - start < size) {
      start = (*link)->end;
      link = &(*link)->next;
    }
    if (size <= device->total - start) {
      *range = (Range){.start = start, .end = start + size, .next = *link};
      *link = range;
      device->used += size;
      *address = device->address + start;
      pthread_mutex_unlock(&chip->lock);
      return FLAGOS_VENDOR_OK;
    }
  }
  if (status == FLAGOS_VENDOR_OK) {
    status =
        chip_fail(FLAGOS_VENDOR_OUT_OF_MEMORY, "%zu bytes with %zu of %zu in use", nbytes, device->used, device->total);
  }
  pthread_mutex_unlock(&chip->lock);
  free(range);
  return status;
}

static int32_t memory_free(Chip* chip, int32_t index, void* address, size_t nbytes) {
  (void)nbytes;
  Device* device = &chip->devices[index];
  const size_t start = offset(device, address);
  pthread_mutex_lock(&chip->lock);
  Range** link = &device->ranges;
  while (*link != NULL && (*link)->start != start)
    link = &(*link)->next;
  Range* range = *link;
  if (range != NULL) {
    *link = range->next;
    device->used -= range->end - range->start;
    // The pages go back to the system, and are zero when they are used again.
    madvise(device->view + range->start, range->end - range->start, MADV_DONTNEED);
  }
  pthread_mutex_unlock(&chip->lock);
  if (range == NULL)
    return chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "%p is not allocated on device %d", address, index);
  free(range);
  return FLAGOS_VENDOR_OK;
}

static int32_t pinned_alloc(Chip* chip, size_t nbytes, void** address) {
  void* memory = NULL;
  Pinned* pinned = malloc(sizeof *pinned);
  if (pinned == NULL || posix_memalign(&memory, ALIGNMENT, nbytes) != 0) {
    free(pinned);
    return chip_fail(FLAGOS_VENDOR_OUT_OF_MEMORY, "the host has no %zu bytes", nbytes);
  }
  pthread_mutex_lock(&chip->lock);
  *pinned = (Pinned){.address = memory, .nbytes = nbytes, .next = chip->pinned};
  chip->pinned = pinned;
  pthread_mutex_unlock(&chip->lock);
  *address = memory;
  return FLAGOS_VENDOR_OK;
}

static int32_t pinned_free(Chip* chip, void* address, size_t nbytes) {
  (void)nbytes;
  pthread_mutex_lock(&chip->lock);
  Pinned** link = &chip->pinned;
  while (*link != NULL && (*link)->address != address)
    link = &(*link)->next;
  Pinned* pinned = *link;
  if (pinned != NULL)
    *link = pinned->next;
  pthread_mutex_unlock(&chip->lock);
  free(pinned);
  free(address);
  return FLAGOS_VENDOR_OK;
}

// Whether memory stays what it is until a graph runs: device memory, and memory that is pinned.
static bool stays(Chip* chip, const void* address) {
  for (int32_t i = 0; i < chip->device_count; i++) {
    if (offset(&chip->devices[i], address) < chip->devices[i].total)
      return true;
  }
  for (Pinned* pinned = chip->pinned; pinned != NULL; pinned = pinned->next) {
    if ((size_t)((uintptr_t)address - (uintptr_t)pinned->address) < pinned->nbytes)
      return true;
  }
  return false;
}

// Where the chip finds what the host calls `address`: its view of device memory, or host memory as it is. NULL for
// device memory that is not allocated.
static char* seen(Chip* chip, const void* address, size_t nbytes) {
  for (int32_t i = 0; i < chip->device_count; i++) {
    Device* device = &chip->devices[i];
    const size_t start = offset(device, address);
    if (start >= device->total)
      continue;
    for (Range* range = device->ranges; range != NULL; range = range->next) {
      if (range->start <= start && start < range->end && nbytes <= range->end - start)
        return device->view + start;
    }
    return NULL;
  }
  return (char*)address;
}

// ------------------------------------------------------------------------------------------------ work

// A mark with one reference, the caller's.
static Mark* new_mark(void) {
  Mark* mark = calloc(1, sizeof *mark);
  if (mark != NULL)
    mark->references = 1;
  return mark;
}

static void release(Mark* mark) {
  if (mark != NULL && --mark->references == 0)
    free(mark);
}

static void release_item(Item* item) {
  if (item->kind == KERNEL)
    free(item->kernel);
  release(item->mark);
  free(item);
}

static void release_graph(Graph* graph) {
  if (--graph->references > 0)
    return;
  while (graph->first != NULL) {
    Item* item = graph->first;
    graph->first = item->next;
    release_item(item);
  }
  free(graph);
}

static void run(Stream* stream, Item* item);

// Runs all work of a graph. It stays as it is, for the next run, which waits meanwhile.
static void run_graph(Stream* stream, Graph* graph) {
  while (graph->running)
    pthread_cond_wait(&graph->chip->progress, &graph->chip->lock);
  graph->running = true;
  for (Item* item = graph->first; item != NULL; item = item->next) {
    void* before = NULL;
    if (item->kind == KERNEL) {
      before = malloc(item->kernel->nbytes);
      if (before == NULL) {
        keep(stream->failure, "the host has no memory left");
        break;
      }
      memcpy(before, item->kernel, item->kernel->nbytes);
    }
    run(stream, item);
    if (before != NULL)
      memcpy(item->kernel, before, item->kernel->nbytes);
    free(before);
  }
  graph->running = false;
  release_graph(graph);
}

// Runs an item. The lock is held, and released while the work itself goes on.
static void run(Stream* stream, Item* item) {
  Chip* chip = stream->chip;
  switch (item->kind) {
    case COPY: {
      char* to = seen(chip, item->to, item->nbytes);
      char* from = seen(chip, item->from, item->nbytes);
      if (to == NULL || from == NULL)
        stream->device->lost = true;
      if (stream->device->lost)
        break;
      pthread_mutex_unlock(&chip->lock);
      memmove(to, from, item->nbytes);
      pthread_mutex_lock(&chip->lock);
      break;
    }
    case KERNEL:
      for (int i = 0; i < CHIP_MEMORIES; i++) {
        ChipMemory* memory = &item->kernel->memory[i];
        if (memory->nbytes == 0)
          continue;
        memory->data = seen(chip, memory->data, memory->nbytes);
        if (memory->data == NULL)
          stream->device->lost = true;
      }
      if (!stream->device->lost) {
        pthread_mutex_unlock(&chip->lock);
        item->kernel->compute(item->kernel);
        pthread_mutex_lock(&chip->lock);
        keep(stream->failure, item->kernel->failure);
      }
      break;
    case HOST_FUNCTION: // called on a lost device too: its context has to be given back
      pthread_mutex_unlock(&chip->lock);
      item->function(item->context);
      pthread_mutex_lock(&chip->lock);
      break;
    case REACH:
      clock_gettime(CLOCK_MONOTONIC, &item->mark->time);
      item->mark->lost = stream->device->lost;
      keep(item->mark->failure, stream->failure);
      item->mark->reached = true;
      break;
    case WAIT:
      while (!item->mark->reached)
        pthread_cond_wait(&chip->progress, &chip->lock);
      break;
    case GRAPH:
      run_graph(stream, item->graph);
      break;
  }
}

static void* serve(void* argument) {
  Stream* stream = argument;
  Chip* chip = stream->chip;
  in_work = true;
  pthread_mutex_lock(&chip->lock);
  for (;;) {
    while (stream->first == NULL && !stream->destroyed)
      pthread_cond_wait(&stream->work, &chip->lock);
    Item* item = stream->first;
    if (item == NULL)
      break;
    stream->first = item->next;
    if (stream->first == NULL)
      stream->last = &stream->first;
    run(stream, item);
    release_item(item);
    stream->finished++;
    pthread_cond_broadcast(&chip->progress);
  }
  const bool over = remove_stream(stream);
  pthread_mutex_unlock(&chip->lock);
  if (over)
    free_chip(chip);
  return NULL;
}

// Adds an item to the graph that the stream is captured into.
static void capture(Stream* stream, Item* item) {
  Graph* graph = stream->capture;
  *graph->last = item;
  graph->last = &item->next;
  stream->sequence = ++graph->sequence;
  for (int i = 0; i < graph->stream_count; i++) {
    if (graph->streams[i] != stream)
      graph->streams[i]->covered &= ~((uint64_t)1 << stream->place);
  }
}

// Queues a copy of the item, and starts the thread with the first one. The lock is held.
static int32_t queue(Stream* stream, Item item) {
  Item* kept = malloc(sizeof *kept);
  if (kept == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  if (stream->capture != NULL) {
    *kept = item;
    kept->next = NULL;
    capture(stream, kept);
    return FLAGOS_VENDOR_OK;
  }
  if (!stream->has_thread) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, stream) != 0) {
      free(kept);
      return chip_fail(FLAGOS_VENDOR_DEVICE, "the host can start no thread");
    }
    pthread_detach(thread);
    stream->has_thread = true;
  }
  if (item.mark != NULL)
    item.mark->references++;
  *kept = item;
  kept->next = NULL;
  *stream->last = kept;
  stream->last = &kept->next;
  stream->queued++;
  pthread_cond_signal(&stream->work);
  return FLAGOS_VENDOR_OK;
}

// ------------------------------------------------------------------------------------------------ waiting for a device

// Waits for what is queued on the device so far, by a mark on each busy stream. The lock is held.
static int32_t drain(Chip* chip, Device* device) {
  if (device->captures != NULL)
    return refuse_in_capture("waiting for the device");
  Mark** marks = calloc(chip->streams, sizeof *marks);
  if (marks == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  size_t count = 0;
  int32_t status = FLAGOS_VENDOR_OK;
  for (Stream* stream = device->streams; stream != NULL && status == FLAGOS_VENDOR_OK; stream = stream->next) {
    if (stream->finished == stream->queued)
      continue;
    Mark* mark = in_work ? NULL : new_mark();
    if (mark == NULL) {
      status = in_work ? refuse_in_work() : chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
    } else {
      marks[count++] = mark;
      status = queue(stream, (Item){.kind = REACH, .mark = mark});
    }
  }
  for (size_t i = 0; i < count; i++) {
    // Only the last one may not be queued.
    while (!marks[i]->reached && marks[i]->references > 1)
      pthread_cond_wait(&chip->progress, &chip->lock);
    release(marks[i]);
  }
  free(marks);
  return status;
}

static int32_t device_quiesce(Chip* chip, int32_t device) {
  pthread_mutex_lock(&chip->lock);
  int32_t status = drain(chip, &chip->devices[device]);
  pthread_mutex_unlock(&chip->lock);
  return status;
}

static int32_t device_sync(Chip* chip, int32_t device) {
  Device* of = &chip->devices[device];
  pthread_mutex_lock(&chip->lock);
  int32_t status = drain(chip, of);
  if (status == FLAGOS_VENDOR_OK)
    status = outcome(of);
  // One is reported, and all are forgotten.
  for (Stream* stream = of->streams; stream != NULL && status == FLAGOS_VENDOR_OK; stream = stream->next) {
    keep(of->failure, stream->failure);
    stream->failure[0] = '\0';
  }
  if (status == FLAGOS_VENDOR_OK)
    status = report(of->failure);
  pthread_mutex_unlock(&chip->lock);
  return status;
}

// ------------------------------------------------------------------------------------------------ streams

static int32_t stream_default(Chip* chip, int32_t device, Stream** stream) {
  *stream = chip->devices[device].default_stream;
  return FLAGOS_VENDOR_OK;
}

static int32_t stream_create(Chip* chip, int32_t device, int32_t priority, Stream** stream) {
  (void)priority; // threads of one process share its priority
  pthread_mutex_lock(&chip->lock);
  *stream = new_stream(chip, &chip->devices[device]);
  pthread_mutex_unlock(&chip->lock);
  return *stream == NULL ? chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left") : FLAGOS_VENDOR_OK;
}

static void end_capture(Graph* graph);

static int32_t stream_destroy(Stream* stream) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  if (stream->capture != NULL) {
    Graph* graph = stream->capture;
    end_capture(graph);
    release_graph(graph);
  }
  end_stream(stream);
  pthread_mutex_unlock(&chip->lock);
  return FLAGOS_VENDOR_OK;
}

static int32_t stream_query(Stream* stream, int32_t* idle) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  *idle = stream->finished == stream->queued;
  int32_t status = outcome(stream->device);
  if (stream->capture != NULL)
    status = refuse_in_capture("asking a captured stream");
  if (status == FLAGOS_VENDOR_OK)
    status = report(stream->failure);
  pthread_mutex_unlock(&chip->lock);
  return status;
}

static int32_t stream_is_idle(Stream* stream) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  bool idle = stream->finished == stream->queued && stream->capture == NULL;
  pthread_mutex_unlock(&chip->lock);
  return idle;
}

static int32_t stream_sync(Stream* stream) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  const uint64_t goal = stream->queued;
  int32_t status = FLAGOS_VENDOR_OK;
  if (stream->finished < goal && in_work)
    status = refuse_in_work();
  if (stream->capture != NULL)
    status = refuse_in_capture("waiting for a captured stream");
  while (status == FLAGOS_VENDOR_OK && stream->finished < goal)
    pthread_cond_wait(&chip->progress, &chip->lock);
  if (status == FLAGOS_VENDOR_OK)
    status = outcome(stream->device);
  if (status == FLAGOS_VENDOR_OK)
    status = report(stream->failure);
  pthread_mutex_unlock(&chip->lock);
  return status;
}

// The kind tells other chips which engine to take; this one finds out by the address, and holds the host to its word.
static int32_t check_kind(Stream* stream, const void* to, const void* from, int32_t kind) {
  int devices = 0, own = 0;
  const void* sides[] = {to, from};
  for (int side = 0; side < 2; side++) {
    for (int32_t i = 0; i < stream->chip->device_count; i++) {
      Device* device = &stream->chip->devices[i];
      if (offset(device, sides[side]) >= device->total)
        continue;
      devices |= 1 << side;
      own |= (device == stream->device) << side;
    }
  }
  const int32_t kinds[] = {
      FLAGOS_VENDOR_COPY_HOST_TO_HOST,
      FLAGOS_VENDOR_COPY_HOST_TO_DEVICE,
      FLAGOS_VENDOR_COPY_DEVICE_TO_HOST,
      FLAGOS_VENDOR_COPY_DEVICE_TO_DEVICE};
  const int32_t expected = devices != own ? FLAGOS_VENDOR_COPY_PEER : kinds[devices];
  if (kind == expected)
    return FLAGOS_VENDOR_OK;
  return chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "a copy of kind %d is said to be of kind %d", expected, kind);
}

static int32_t stream_copy(Stream* stream, void* to, const void* from, size_t nbytes, int32_t kind) {
  int32_t status = check_kind(stream, to, from, kind);
  if (status != FLAGOS_VENDOR_OK)
    return status;
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  status = outcome(stream->device);
  if (stream->capture != NULL && !(stays(chip, to) && stays(chip, from)))
    status = refuse_in_capture("a copy of memory that is not pinned");
  if (status == FLAGOS_VENDOR_OK) {
    status = queue(stream, (Item){.kind = COPY, .to = to, .from = (void*)from, .nbytes = nbytes});
  }
  pthread_mutex_unlock(&chip->lock);
  return status;
}

int32_t chip_queue(Stream* stream, ChipWork* work) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  int32_t status = outcome(stream->device);
  if (status == FLAGOS_VENDOR_OK)
    status = queue(stream, (Item){.kind = KERNEL, .kernel = work});
  pthread_mutex_unlock(&chip->lock);
  return status;
}

static int32_t stream_host_function(Stream* stream, FlagosVendorHostFunction function, void* context) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  int32_t status = stream->capture != NULL
      ? refuse_in_capture("a function of the host, whose context serves one call")
      : queue(stream, (Item){.kind = HOST_FUNCTION, .function = function, .context = context});
  pthread_mutex_unlock(&chip->lock);
  return status;
}

// ------------------------------------------------------------------------------------------------ events

static int32_t event_create(Chip* chip, int32_t device, uint32_t flags, FlagosVendorEvent** out) {
  (void)device;
  FlagosVendorEvent* event = calloc(1, sizeof *event);
  if (event == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  event->chip = chip;
  event->timing = flags & FLAGOS_VENDOR_EVENT_TIMING;
  *out = event;
  return FLAGOS_VENDOR_OK;
}

static int32_t event_destroy(FlagosVendorEvent* event) {
  Chip* chip = event->chip;
  pthread_mutex_lock(&chip->lock);
  release(event->mark);
  pthread_mutex_unlock(&chip->lock);
  free(event);
  return FLAGOS_VENDOR_OK;
}

static int32_t event_record(FlagosVendorEvent* event, Stream* stream) {
  Chip* chip = stream->chip;
  Mark* mark = new_mark();
  if (mark == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  pthread_mutex_lock(&chip->lock);
  int32_t status = FLAGOS_VENDOR_OK;
  if (stream->capture != NULL) {
    mark->capture = stream->capture->number;
    mark->covered = stream->covered | (uint64_t)1 << stream->place;
    mark->sequence = stream->capture->sequence;
  } else {
    status = queue(stream, (Item){.kind = REACH, .mark = mark});
  }
  Mark* before = mark;
  if (status == FLAGOS_VENDOR_OK) {
    before = event->mark;
    event->mark = mark;
  }
  release(before);
  pthread_mutex_unlock(&chip->lock);
  return status;
}

// Lets a stream wait for a captured mark, by which it joins the capture.
static int32_t join(Mark* mark, Stream* stream) {
  Graph* graph = stream->device->captures;
  while (graph != NULL && graph->number != mark->capture)
    graph = graph->next;
  if (graph == NULL || (stream->capture != NULL && stream->capture != graph))
    return chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "the event was recorded in another capture");
  if (stream->capture == NULL) {
    if (graph->stream_count == MAX_CAPTURED_STREAMS)
      return chip_fail(FLAGOS_VENDOR_UNSUPPORTED, "a capture has at most %d streams", MAX_CAPTURED_STREAMS);
    stream->capture = graph;
    stream->place = graph->stream_count;
    stream->covered = 0;
    // Nothing covers the stream before it comes back.
    stream->sequence = ++graph->sequence;
    graph->streams[graph->stream_count++] = stream;
  }
  for (int i = 0; i < graph->stream_count; i++) {
    const uint64_t bit = (uint64_t)1 << i;
    if ((mark->covered & bit) != 0 && graph->streams[i]->sequence <= mark->sequence)
      stream->covered |= bit;
  }
  return FLAGOS_VENDOR_OK;
}

static int32_t event_wait(FlagosVendorEvent* event, Stream* stream) {
  Chip* chip = stream->chip;
  int32_t status = FLAGOS_VENDOR_OK;
  pthread_mutex_lock(&chip->lock);
  if (event->mark != NULL && event->mark->capture != 0) {
    status = join(event->mark, stream);
  } else if (event->mark != NULL && !event->mark->reached && stream->capture != NULL) {
    status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "a captured stream cannot wait for work outside of the capture");
  } else if (event->mark != NULL && !event->mark->reached) {
    status = queue(stream, (Item){.kind = WAIT, .mark = event->mark});
  }
  pthread_mutex_unlock(&chip->lock);
  return status;
}

// An event reports each time it is asked: several threads may ask.
static int32_t reached(const Mark* mark) {
  if (mark->lost)
    return chip_fail(FLAGOS_VENDOR_DEVICE_LOST, "CHIP_ILLEGAL_ADDRESS: work before the event lost the device");
  if (mark->failure[0] != '\0')
    return chip_fail(FLAGOS_VENDOR_DEVICE, "%s", mark->failure);
  return FLAGOS_VENDOR_OK;
}

static int32_t event_query(FlagosVendorEvent* event, int32_t* done) {
  Chip* chip = event->chip;
  int32_t status = FLAGOS_VENDOR_OK;
  pthread_mutex_lock(&chip->lock);
  *done = event->mark == NULL || event->mark->reached;
  if (event->mark != NULL && event->mark->capture != 0)
    status = refuse_in_capture("asking an event that was recorded in one");
  if (event->mark != NULL && event->mark->reached)
    status = reached(event->mark);
  pthread_mutex_unlock(&chip->lock);
  return status;
}

static int32_t event_sync(FlagosVendorEvent* event) {
  Chip* chip = event->chip;
  int32_t status = FLAGOS_VENDOR_OK;
  pthread_mutex_lock(&chip->lock);
  Mark* mark = event->mark;
  if (mark != NULL && mark->capture != 0) {
    status = refuse_in_capture("waiting for an event that was recorded in one");
  } else if (mark != NULL && !mark->reached && in_work) {
    status = refuse_in_work();
  } else if (mark != NULL) {
    mark->references++; // another thread may record the event again
    while (!mark->reached)
      pthread_cond_wait(&chip->progress, &chip->lock);
    status = reached(mark);
    release(mark);
  }
  pthread_mutex_unlock(&chip->lock);
  return status;
}

static int32_t event_elapsed(FlagosVendorEvent* start, FlagosVendorEvent* end, double* milliseconds) {
  int32_t status = FLAGOS_VENDOR_OK;
  FlagosVendorEvent* events[] = {start, end};
  double times[2] = {0, 0};
  pthread_mutex_lock(&start->chip->lock);
  for (int i = 0; i < 2 && status == FLAGOS_VENDOR_OK; i++) {
    const Mark* mark = events[i]->mark;
    if (!events[i]->timing) {
      status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "an event was made without timing");
    } else if (mark == NULL) {
      status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "an event has not been recorded");
    } else if (!mark->reached) {
      status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "an event has not finished");
    } else {
      times[i] = (double)mark->time.tv_sec * 1e3 + (double)mark->time.tv_nsec / 1e6;
    }
  }
  pthread_mutex_unlock(&start->chip->lock);
  if (status == FLAGOS_VENDOR_OK)
    *milliseconds = times[1] - times[0];
  return status;
}

// ------------------------------------------------------------------------------------------------ graphs

// One lock and one way to wait serve every thread: there is no call that one mode forbids and another one allows.
static int32_t capture_begin(Stream* stream, int32_t mode) {
  (void)mode;
  Chip* chip = stream->chip;
  Graph* graph = calloc(1, sizeof *graph);
  if (graph == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  pthread_mutex_lock(&chip->lock);
  int32_t status = outcome(stream->device);
  if (stream->capture != NULL)
    status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "the stream is being captured already");
  if (status == FLAGOS_VENDOR_OK) {
    *graph = (Graph){.chip = chip, .device = stream->device, .number = ++chip->captures, .references = 1};
    graph->last = &graph->first;
    graph->streams[graph->stream_count++] = stream;
    graph->next = stream->device->captures;
    stream->device->captures = graph;
    stream->capture = graph;
    stream->place = 0;
    stream->covered = 0;
    stream->sequence = 0;
  }
  pthread_mutex_unlock(&chip->lock);
  if (status != FLAGOS_VENDOR_OK)
    free(graph);
  return status;
}

static int32_t capture_status(Stream* stream, uint64_t* number, int32_t* valid) {
  pthread_mutex_lock(&stream->chip->lock);
  *number = stream->capture == NULL ? 0 : stream->capture->number;
  *valid = stream->capture != NULL;
  pthread_mutex_unlock(&stream->chip->lock);
  return FLAGOS_VENDOR_OK;
}

// Lets the streams of a capture go on as before it.
static void end_capture(Graph* graph) {
  Graph** link = &graph->device->captures;
  while (*link != graph)
    link = &(*link)->next;
  *link = graph->next;
  for (int i = 0; i < graph->stream_count; i++)
    graph->streams[i]->capture = NULL;
}

static int32_t capture_end(Stream* stream, Graph** out) {
  Chip* chip = stream->chip;
  int32_t status = FLAGOS_VENDOR_OK;
  pthread_mutex_lock(&chip->lock);
  Graph* graph = stream->capture;
  if (graph == NULL || graph->streams[0] != stream) {
    status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "no capture began on this stream");
  } else {
    int missing = 0;
    for (int i = 1; i < graph->stream_count; i++)
      missing += (stream->covered >> i & 1) == 0;
    end_capture(graph);
    if (missing > 0) {
      status = chip_fail(FLAGOS_VENDOR_DEVICE, "%d streams that joined the capture have not come back", missing);
      release_graph(graph);
    }
  }
  pthread_mutex_unlock(&chip->lock);
  if (status == FLAGOS_VENDOR_OK)
    *out = graph;
  return status;
}

static int32_t graph_launch(Graph* graph, Stream* stream) {
  Chip* chip = stream->chip;
  pthread_mutex_lock(&chip->lock);
  int32_t status = outcome(stream->device);
  if (stream->capture != NULL)
    status = refuse_in_capture("a graph cannot contain another one");
  if (status == FLAGOS_VENDOR_OK && graph->device != stream->device)
    status = chip_fail(FLAGOS_VENDOR_INVALID_ARGUMENT, "the graph is of another device than the stream");
  if (status == FLAGOS_VENDOR_OK)
    status = queue(stream, (Item){.kind = GRAPH, .graph = graph});
  if (status == FLAGOS_VENDOR_OK)
    graph->references++;
  pthread_mutex_unlock(&chip->lock);
  return status;
}

static int32_t graph_destroy(Graph* graph) {
  Chip* chip = graph->chip;
  pthread_mutex_lock(&chip->lock);
  release_graph(graph);
  pthread_mutex_unlock(&chip->lock);
  return FLAGOS_VENDOR_OK;
}

// ------------------------------------------------------------------------------------------------ the vendor

static const char* const aliases[] = {"chip", NULL};
static const char* const device_lost[] = {"CHIP_ILLEGAL_ADDRESS", NULL};
static const FlagosVendorVariable variables[] = {
    {sizeof(FlagosVendorVariable), "EXAMPLE_CHIP_DEVICES", "The number of simulated devices, 0 to 16; 2 unless set."},
    {sizeof(FlagosVendorVariable), "EXAMPLE_CHIP_MEMORY", "The bytes of each device; 1 GiB unless set."},
    {sizeof(FlagosVendorVariable),
     "EXAMPLE_CHIP_KERNELS",
     "0 leaves the chip without kernels; it has some unless set."},
};

static const FlagosVendorDescription description = {
    .struct_size = sizeof(FlagosVendorDescription),
    .name = "example",
    .version = "1.0",
    .aliases = aliases,
    .variables = variables,
    .num_variables = sizeof variables / sizeof *variables,
    .device_lost = device_lost,
    .serving = FLAGOS_VENDOR_SERVED_BY_LIBRARY,
    .dlpack_device_type = 12, // kDLExtDev
};

static const FlagosVendor table = {
    .struct_size = sizeof(FlagosVendor),
    .major = FLAGOS_VENDOR_MAJOR,
    .minor = FLAGOS_VENDOR_MINOR,
    .capabilities = FLAGOS_VENDOR_CAPTURES,
    .description = &description,
    .last_error = chip_last_error,
    .probe = probe,
    .open = open_chip,
    .close = close_chip,
    .after_fork_in_child = after_fork_in_child,
    .in_stream_work = in_stream_work,
    .device_count = device_count,
    .device_properties = device_properties,
    .device_memory = device_memory,
    .device_sync = device_sync,
    .device_quiesce = device_quiesce,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .pinned_alloc = pinned_alloc,
    .pinned_free = pinned_free,
    .stream_default = stream_default,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_query,
    .stream_is_idle = stream_is_idle,
    .stream_sync = stream_sync,
    .stream_copy = stream_copy,
    .stream_host_function = stream_host_function,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_status = capture_status,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};

const FlagosVendor* flagos_vendor(const FlagosVendorHost* host, const char** reason) {
  // `newest_major` lies behind `oldest_major`.
  const bool told = FLAGOS_VENDOR_HAS(FlagosVendorHost, host, newest_major);
  if (!told || host->oldest_major > FLAGOS_VENDOR_MAJOR || host->newest_major < FLAGOS_VENDOR_MAJOR) {
    *reason = "the chip was compiled for another version of flagos_vendor.h";
    return NULL;
  }
  return &table;
}
