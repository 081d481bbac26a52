#define PACELINE_ISA scalar
#include "sampling/row_scans_template.hpp"
