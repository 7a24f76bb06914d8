#pragma once

#include "glm/backend.h"

namespace glm::cpu {

void set_memory_info(glm_device_info* info);
void set_processor_name(glm_device_info* info);

}
