// The icons of the product, by what they mean; one by one, so that the bundle holds no others.
import Activity from "@lucide/svelte/icons/activity";
import AlertTriangle from "@lucide/svelte/icons/triangle-alert";
import ArrowDown from "@lucide/svelte/icons/arrow-down";
import Box from "@lucide/svelte/icons/box";
import Check from "@lucide/svelte/icons/check";
import ChevronDown from "@lucide/svelte/icons/chevron-down";
import ChevronLeft from "@lucide/svelte/icons/chevron-left";
import ChevronRight from "@lucide/svelte/icons/chevron-right";
import CircleAlert from "@lucide/svelte/icons/circle-alert";
import CircleCheck from "@lucide/svelte/icons/circle-check";
import CircleX from "@lucide/svelte/icons/circle-x";
import Clock from "@lucide/svelte/icons/clock";
import Contrast from "@lucide/svelte/icons/contrast";
import Copy from "@lucide/svelte/icons/copy";
import Cpu from "@lucide/svelte/icons/cpu";
import Database from "@lucide/svelte/icons/database";
import Download from "@lucide/svelte/icons/download";
import FolderOpen from "@lucide/svelte/icons/folder-open";
import GitFork from "@lucide/svelte/icons/git-fork";
import HardDrive from "@lucide/svelte/icons/hard-drive";
import Info from "@lucide/svelte/icons/info";
import Layers from "@lucide/svelte/icons/layers";
import List from "@lucide/svelte/icons/list";
import Loader from "@lucide/svelte/icons/loader";
import MemoryStick from "@lucide/svelte/icons/memory-stick";
import MessageSquare from "@lucide/svelte/icons/message-square-text";
import Pause from "@lucide/svelte/icons/pause";
import Pencil from "@lucide/svelte/icons/pencil";
import Play from "@lucide/svelte/icons/play";
import Plus from "@lucide/svelte/icons/plus";
import RotateCcw from "@lucide/svelte/icons/rotate-ccw";
import Save from "@lucide/svelte/icons/save";
import Search from "@lucide/svelte/icons/search";
import Send from "@lucide/svelte/icons/send-horizontal";
import Settings from "@lucide/svelte/icons/sliders-horizontal";
import Shield from "@lucide/svelte/icons/shield-check";
import Square from "@lucide/svelte/icons/square";
import Star from "@lucide/svelte/icons/star";
import Trash from "@lucide/svelte/icons/trash-2";
import Upload from "@lucide/svelte/icons/upload";
import X from "@lucide/svelte/icons/x";

export const ICONS = {
  activity: Activity, alert: CircleAlert, back: ChevronLeft, check: Check, clock: Clock, close: X, copy: Copy, cpu: Cpu,
  data: Database, disk: HardDrive, down: ChevronDown, edit: Pencil, error: CircleX, export: Upload, folder: FolderOpen,
  fork: GitFork, history: List, info: Info, layers: Layers, left: ChevronLeft, loading: Loader, machine: Cpu,
  memory: MemoryStick, model: Box, new: Download, ok: CircleCheck, pause: Pause, play: Play, plus: Plus, refresh: RotateCcw,
  right: ChevronRight, run: Play, save: Save, search: Search, send: Send, settings: Settings, shield: Shield,
  sort: ArrowDown, star: Star, stop: Square, theme: Contrast, trash: Trash, try: MessageSquare, undo: RotateCcw,
  warn: AlertTriangle, warning: AlertTriangle, x: X,
} as const;

export type IconName = keyof typeof ICONS;
