// This file is compiled once for each instruction set; PACELINE_ISA is the set's name.
#include "sampling/row_scans_template.hpp"
