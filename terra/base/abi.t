local target = terralib.newtarget {
  Triple = "x86_64-pc-linux-gnu",
  CPU = "x86-64-v3",
  Features = "",
}

local C = terralib.includecstring([[
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "glm/backend.h"
#include "glm/engine.h"
]], { "-I", "native/include", "-D_GNU_SOURCE" }, target)

return { C = C, target = target }
